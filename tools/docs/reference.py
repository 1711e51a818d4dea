# SPDX-License-Identifier: Apache-2.0
"""Writes most of the pages, tables and files that `make docs` generates from the code.

In docs/reference, these are
{aws,azure,cloudstack,commands,configuration,conformance,contract,controllers,flags,gce}.md and
{hetzner,libcloud,metrics,openstack,variables}.md, and the JSON Schema of the commands' answers. Elsewhere, these are
the tables of docs/providers/static.md and docs/how-to/another-controller.md, and the collection's table of
controllers."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import aws_page
import azure_page
import cloudstack_page
import commands_page
import contract_page
import controllers_table
import gce_page
import hetzner_page
import libcloud_page
import openstack_page
import static_page
import variables_page
import vendors_table
import yaml
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from ccm.cloud import Cloud, ProviderConfig
from ccm.conformance import CASES, Trouble
from ccm.controllers.controller_registry import BUILT_IN
from ccm.controllers.controller_spec import ControllerSpec, Right
from ccm.manager.rights_check import needed
from ccm.options import feature_gates
from ccm.options.command_line import Options, parse_as
from ccm.options.config_file import OURS, place
from ccm.options.declaration import Flag, flags_of
from ccm.options.flags import FLAGS
from ccm.options.ignored_flags import IGNORED
from ccm.serving.health import SLIS

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by `make docs` from the code: do not edit. -->
"""

FLAGS_INTRO = """# Flags of `ccm`

All flags of upstream's cloud-controller-manager are accepted, so existing manifests carry over. They have upstream's
meaning, except for [those that have no effect here](#accepted-and-ignored). Some flags are this project's own. The
process reports all problems with flags and files at once.

A file can set every flag, too (`--config`, see [configuration](configuration.md)); flags override the file. Durations
are Go's: `10s`, `5m`, `1h30m`. Commas separate the items of a list.
"""

CONFIGURATION_INTRO = f"""# Configuration file: `--config` and `/configz`

The file has the shape of upstream's `CloudControllerManagerConfiguration`, which upstream itself does not read from
files. Keys are spelt as in the Go type. Options without an upstream key are below `{OURS}`, under the name of
their flag.

The process reads the file strictly. It refuses unknown keys, repeated keys, and values of the wrong type, and it
reports all problems at once, each with its line. A missing key has its default, and flags override the file. Keys of
flags without an effect here ([flags](flags.md)) are accepted and ignored.

`GET /configz` on the secure port shows all options in this shape, below `cloudcontrollermanager.config.k8s.io`, to
everybody whom the API server authorises. It shows names of files, never their content. Its output works as a
`--config` file.

## Controllers of other packages

Their options are below `{OURS}.controllers`, under the controller's name: see [Write a
controller](../how-to/your-own-controller.md). Each section is read as strictly as the rest.

## Cloud configuration

`--cloud-config` is the provider's own file. The process checks it every few seconds. When its content changes, the
process opens a new connection to the cloud, checks the credentials, and switches to that connection between two calls.
Rotating a credential therefore needs no restart. If the file is invalid or the cloud refuses it, the old connection
stays, and the log, an Event on the Lease (`CloudConfigRefused`) and the metric `ccm_cloud_config_reloads_total` report
the reason. A change of the provider, or a change that removes a capability in use, requires a restart.

The new credentials may be those of another project. So after a switch, the controllers create, change and delete no
load balancer and no route until the cloud has listed the machines of at least half of the Ready Nodes. Meanwhile, the
Event `NodeNotVouched` on the Nodes that are missing, and `LoadBalancerWaits` on each Service that waits, say what is
wrong. Correct the file: the next listing follows within a minute.
"""

CONFORMANCE_INTRO = """# What a provider must do

These are the cases of the conformance kit. `ccm check-provider NAME --cloud-config FILE` runs them. [Write a
provider](../providers/your-own.md) explains how, and how your own tests give the kit a cloud that fails on request.

Each case is about one capability, and does not apply to a provider without it. Cases that write require
`--allow-writes`. They give what they create a name that begins with `ccm-conformance-`, and remove it. A case that
cannot run is reported with the reason and never counts as passed. NotFound, Transient, Conflict and so on are
[errors](contract.md#errors) that the provider raises.
"""

TROUBLE = """## Trouble

The failures that the `World` of a test can cause (`World.trouble`). Each one lasts until the test ends it.
"""

MIGRATION = """## Leader migration

`--enable-leader-migration` moves controllers from another manager to this one without running any of them twice: a
migrated controller runs only in the process that also holds a second Lease. `--leader-migration-config` names a file.
Without it, and without the key `Generic.LeaderMigration`, the route, service and node lifecycle controllers migrate.
The file accepts the former, short and present names of controllers.

```yaml
apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: cloud-provider-extraction-migration
controllerLeaders:
- {name: node-route-controller, component: "*"}
- {name: service-lb-controller, component: "*"}
- {name: cloud-node-lifecycle-controller, component: "*"}
```

A controller whose `component` is `cloud-controller-manager` or `*` runs here under the migration Lease. A controller
with another `component` does not run here. A controller that is not listed runs under the main Lease alone. The process
stops when it loses either Lease.
"""

CONTROLLERS_INTRO = """# Controllers

`--controllers` selects the controllers that run: `*` means all that are on by default, `name` switches one on, and
`-name` switches it off. A controller that the provider does not support is not started. The log says so, and the
Lease's annotation `ccm.outoftree.dev/not-offered` names it. At start, the process asks the API server whether it has
the rights that its controllers need, and stops with a list of the missing ones.

Other packages can add controllers: see [Write a controller](../how-to/your-own-controller.md).
"""

METRICS_INTRO = """# Metrics of `ccm`

`GET /metrics` on the secure port shows the metrics to everybody whom the API server authorises (`nonResourceURLs:
["/metrics"]`, verb `get`; by default, the group `system:monitoring`). Names without the prefix `ccm_` are those of the
Kubernetes components, with the same labels and buckets, so dashboards and alerts carry over. `process_*` and `python_*`
describe the process. Counters end in `_total`; histograms have `_bucket`, `_sum` and `_count`.
"""

SLIS_INTRO = """## `/metrics/slis`

This path shows the last result of each health check:

| Path | Check | Fails when |
|---|---|---|
| `/healthz`, `/livez`, `/readyz` | `ping` | never; it shows that the process answers |
| `/healthz`, `/livez`, `/readyz` | `leaderElection` | the process leads, but its Lease expired more than 20 s ago |
| `/readyz` | `informers` | a cache is not filled yet, or its watch has been silent for three minutes |
| `/readyz` | `queues` | work has waited for ten minutes |
| `/readyz` | `cloud` | the cloud has not accepted the credentials yet, or has not answered for five minutes |

`?verbose` shows all checks, `?exclude=cloud` excludes one, and `/readyz/cloud` runs one. Everybody may request
`/healthz`, `/livez` and `/readyz` themselves. The log says why a check failed, and so does the response to clients that
are authorised for the path.
"""


class _NoCloud(Cloud):
    """A provider without any parts."""


def pages() -> dict[str, str]:
    """Return the text of each file in docs/reference, by its name."""
    return {
        "commands.md": "\n".join(commands_page.page(HEAD, _table)),
        "answers.schema.json": commands_page.schema(),
        "flags.md": "\n".join(_flags()),
        "configuration.md": "\n".join(_configuration()),
        "controllers.md": "\n".join(_controllers()),
        "metrics.md": "\n".join(_metrics()),
        "conformance.md": "\n".join(_conformance()),
        "contract.md": "\n".join(contract_page.page(HEAD, _table)),
        "aws.md": "\n".join(aws_page.page(HEAD, _table)),
        "azure.md": "\n".join(azure_page.page(HEAD, _table)),
        "cloudstack.md": "\n".join(cloudstack_page.page(HEAD, _table)),
        "gce.md": "\n".join(gce_page.page(HEAD, _table)),
        "hetzner.md": "\n".join(hetzner_page.page(HEAD, _table)),
        "libcloud.md": "\n".join(libcloud_page.page(HEAD, _table)),
        "openstack.md": "\n".join(openstack_page.page(HEAD, _table)),
        "variables.md": "\n".join(variables_page.page(HEAD, _table)),
    }


def _conformance() -> Iterator[str]:
    yield HEAD + CONFORMANCE_INTRO
    rows = [
        (f"`{case.name}`", case.needs.replace("_", " "), "yes" if case.writes else "no", case.summary) for case in CASES
    ]
    yield _table(("Case", "About", "Writes", "What must hold"), rows)
    yield TROUBLE
    yield _table(("Trouble", "What happens"), [(f"`{kind.name}`", kind.value) for kind in Trouble])


def _flags(flags: Sequence[Flag] = FLAGS) -> Iterator[str]:
    yield HEAD + FLAGS_INTRO
    for group in dict.fromkeys(flag.group for flag in flags):
        yield f"## {group[0].upper()}{group[1:]}\n"
        rows = [(f"`--{flag.name}`", _default(flag), flag.help, flag.upstream) for flag in flags if flag.group == group]
        yield _table(("Flag", "Default", "Meaning", "Upstream's default, if it differs"), rows)
        if group == "general":
            yield "`--config FILE` reads options from a file; `--version`, `--version=raw` and `-h` print and exit.\n"
    yield "## Feature gates\n"
    rows = [
        (f"`{name}`", str(gate.default).lower(), gate.stage, gate.help) for name, gate in feature_gates.KNOWN.items()
    ]
    yield _table(("Gate", "Default", "Stage", "Meaning"), rows)
    yield "## Accepted and ignored\n\nThe process accepts these flags, so that existing manifests work.\n"
    yield _table(("Flag", "Why it has no effect here"), [(f"`--{name}`", entry.why) for name, entry in IGNORED.items()])


def _configuration(kind: type[Options] = Options) -> Iterator[str]:
    yield HEAD + CONFIGURATION_INTRO
    yield MIGRATION
    yield "## All keys, with their defaults\n\nOnly the provider's name is required.\n"
    yield f"```yaml\n{yaml.safe_dump(parse_as(kind, ['--cloud-provider=sim']).configz(), sort_keys=False)}```\n"
    yield "## Keys and flags\n"
    placed = [flag for flag in flags_of(kind) if flag.place]
    rows = [(f"`{'.'.join(map(str, place(flag)))}`", f"`--{flag.name}`", flag.kind.name) for flag in placed]
    yield _table(("Key", "Flag", "Kind"), rows)


def _controllers() -> Iterator[str]:
    yield HEAD + CONTROLLERS_INTRO
    rows = [
        (
            f"`{spec.name}`, `{spec.alias}`",
            "yes" if spec.on_by_default else "no",
            spec.summary,
            spec.needs(_NoCloud(ProviderConfig())) or "nothing",
            ", ".join(f"`{right}`" for right in _rights(spec)) or "none",
        )
        for spec in BUILT_IN.values()
    ]
    yield _table(("Name, short name", "On by default", "What it does", "Needs", "Rights of its own"), rows)
    everybody = ", ".join(f"`{right}`" for right in needed(()))
    yield f"Every controller shares the caches of Nodes and Services and writes Events: {everybody}.\n"


def _rights(spec: ControllerSpec[Any]) -> list[Right]:
    return sorted({*needed([spec])} - {*needed(())})


def _metrics() -> Iterator[str]:
    for package in ("base", "cloud", "commands", "controllers", "engine", "gateway", "manager", "options", "serving"):
        module = importlib.import_module(f"ccm.{package}")
        for found in pkgutil.walk_packages(module.__path__, f"ccm.{package}."):
            importlib.import_module(found.name)
    yield HEAD + METRICS_INTRO
    rows = _rows(REGISTRY)
    yield "## Metrics of the Kubernetes components\n"
    yield _table(_COLUMNS, [row for row in rows if not row[0].startswith("`ccm_")])
    yield "## Metrics of this program\n"
    yield _table(_COLUMNS, [row for row in rows if row[0].startswith("`ccm_")])
    yield SLIS_INTRO
    yield _table(_COLUMNS, _rows(SLIS))


_COLUMNS = ("Name", "Type", "Labels", "Meaning")


def _rows(registry: CollectorRegistry) -> list[tuple[str, ...]]:
    """Return a row for each declared metric, even if it has no sample."""
    found = []
    for metric in registry._collector_to_names:
        if isinstance(metric, MetricWrapperBase):
            name = metric._name + ("_total" if metric._type == "counter" else "")
            labels = ", ".join(f"`{label}`" for label in metric._labelnames) or "none"
            found.append((f"`{name}`", metric._type, labels, metric._documentation))
    return sorted(found)


def _default(flag: Flag) -> str:
    shown = flag.kind.dump(flag.default)
    if shown in ("", [], {}):
        return "empty"
    text = ",".join(shown) if isinstance(shown, list) else str(shown).lower() if isinstance(shown, bool) else f"{shown}"
    return f"`{text}`"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(tuple(columns))]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    controllers_table.FILE.write_text(controllers_table.text())
    for page in (static_page, vendors_table):
        page.PAGE.write_text(page.filled(page.PAGE.read_text(), _table))


if __name__ == "__main__":
    main()
