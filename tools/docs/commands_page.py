# SPDX-License-Identifier: Apache-2.0
"""docs/reference/commands.md and the JSON Schema of the answers, from the code of the commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.inspect import Metadata, StructType, Type

from ccm import cli
from ccm.commands.asking.answers import FINDINGS, NOT_ANSWERED, NOTHING_TO_DO, Outlook, Unasked
from ccm.commands.asking.explanation import Explanation, Looked, Told
from ccm.commands.asking.question_flags import GROUP, Questions
from ccm.commands.doctor.diagnosis import Check, Diagnosis
from ccm.commands.doctor.doctor import DoctorFlags
from ccm.commands.list_nodes import Match
from ccm.commands.plan import PlanAnswer
from ccm.commands.status.status import Replica, StatusAnswer, StatusFlags
from ccm.options.declaration import flags_of
from ccm.serving.status_report import (
    Breaker,
    Budget,
    Calls,
    CloudState,
    Count,
    Held,
    Process,
    Queue,
    Series,
    Status,
    Unfinished,
)

INTRO = """# Commands

`ccm` without a command is the controller. `ccm --help` lists its commands, and `python -m ccm` is the same program.
`kubectl ccm` runs the commands that only read; the package installs the program `kubectl-ccm` for this.

[Find out why, and what would change](../how-to/answers.md) shows how to use them.
"""

FLAGS = """## Flags of `explain`, `plan`, `doctor` and `status`

They take every flag of the controller ([Flags](flags.md)), so the arguments of a manifest can be pasted. In the
controller's Pod, a command without `--cloud-provider` uses the arguments of process 1, which is the controller, and
then its own. Without `--kubeconfig` and `--master`, the commands use the kubeconfig of `kubectl` (`$KUBECONFIG`, or
`~/.kube/config`), or the Pod's ServiceAccount.

`explain` and `doctor` ask no cloud without `--cloud-provider`. `plan` requires it. `status` never asks the cloud. In
addition, the commands have these flags:
"""

STATUS = f"""## Exit status

| Status | `explain`, `plan`, `doctor`, `status` |
|---|---|
| {NOTHING_TO_DO} | Every question was answered, and nothing is left to do. |
| {FINDINGS} | Every question was answered, and something is left to do. `doctor`: there are warnings \
or problems. `status`: something is not as it should be. |
| {NOT_ANSWERED} | A question got no answer, there is no object of this name, or the flags are invalid. The \
output may have findings as well. |

`ccm nodes` exits with 0 if it prints a list, with 1 if a question got no answer, and with 2 for invalid flags.

## Completion

`ccm completion bash`, `zsh` or `tcsh` prints a script for the shell: `source <(ccm completion bash)`. It needs the
package [shtab](https://github.com/iterative/shtab), which the extra `completion` of this package installs.
"""

JSON = """## JSON

`--output=json` prints one object. Its key `answer` has its kind: `explanation`, `plan`, `diagnosis` or `status`.
`ccm nodes` prints a list. The JSON Schema of all is in [answers.schema.json](answers.schema.json). Later versions may
add keys, and new values of `check` and `reason`; existing ones keep their meaning.
"""

ANSWERS: tuple[tuple[str, type], ...] = (
    ("`explanation`, of `ccm explain`", Explanation),
    ("`plan`, of `ccm plan`", PlanAnswer),
    ("`diagnosis`, of `ccm doctor`", Diagnosis),
    ("`status`, of `ccm status`", StatusAnswer),
    ("Items of the list of `ccm nodes`", Match),
    ("Items of `outlooks`", Outlook),
    ("Items of `lookedUp`", Looked),
    ("Items of `events`", Told),
    ("Items of `checks`", Check),
    ("Items of `unasked`", Unasked),
    ("Items of `replicas`", Replica),
    ("Items of `processes`, and the answer of `/statusz?format=json`", Status),
    ("`process`", Process),
    ("Items of `nodes` and `services`", Count),
    ("Items of `unfinished`", Unfinished),
    ("Items of `held`", Held),
    ("Items of `queues`", Queue),
    ("`cloud`", CloudState),
    ("Items of `calls`", Calls),
    ("Items of `budgets`", Budget),
    ("Items of `breakers`", Breaker),
    ("Items of `history`", Series),
)


def page(head: str, table: Callable[[Any, Any], str]) -> Iterator[str]:
    yield head + INTRO
    rows = [
        (f"`ccm {name}`", command.summary, "yes" if name in cli.READING else "no")
        for name, command in cli.COMMANDS.items()
    ]
    yield table(("Command", "What it does", "Also as `kubectl ccm`"), rows)
    yield FLAGS
    kinds = {"explain, plan, doctor, status": Questions, "doctor": DoctorFlags, "status": StatusFlags}
    shown: dict[str, tuple[str, str, str]] = {}
    for whose, kind in kinds.items():
        for flag in flags_of(kind):
            if flag.group == GROUP:
                shown.setdefault(flag.name, (f"`--{flag.name}`", whose, flag.help))
    yield table(("Flag", "Of", "Meaning"), shown.values())
    yield STATUS
    yield JSON
    for title, kind in ANSWERS:
        yield f"### {title}\n"
        yield table(("Key", "Type", "Meaning"), _fields(kind))


def _fields(kind: type) -> Iterator[tuple[str, str, str]]:
    found = msgspec.inspect.type_info(kind)
    assert isinstance(found, StructType)
    for field in found.fields:
        described = field.type
        text = ""
        if isinstance(described, Metadata):
            text, described = str((described.extra_json_schema or {}).get("description", "")), described.type
        yield f"`{field.encode_name}`", _name(described), text


def _name(described: Type) -> str:
    info = msgspec.inspect
    if isinstance(described, Metadata):
        return _name(described.type)
    if isinstance(described, info.ListType):
        return f"list of {_name(described.item_type)}"
    if isinstance(described, info.DictType):
        return f"map of {_name(described.value_type)}"
    if isinstance(described, info.UnionType):
        return " or ".join(_name(each) for each in described.types)
    if isinstance(described, (StructType, info.EnumType)):
        return "object" if isinstance(described, StructType) else "text"
    names = {
        info.StrType: "text",
        info.IntType: "number",
        info.FloatType: "number",
        info.BoolType: "true or false",
        info.NoneType: "null",
    }
    return names[type(described)]


def schema() -> str:
    """Return the JSON Schema of all answers."""
    kind: Any = Explanation | PlanAnswer | Diagnosis | StatusAnswer | list[Match]
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | msgspec.json.schema(kind)
    return json.dumps(found, indent=2) + "\n"
