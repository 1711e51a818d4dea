# SPDX-License-Identifier: Apache-2.0
"""What the tests with generated texts share: values of flags, the count of results, and edits by others."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import yaml

#: libyaml's writer, which is ten times as fast, where PyYAML has it.
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

#: An edit of a text by a person or a program; the second argument is the text's data.
Edit = Callable[[str, Any], str]

#: Possible values of flags that a migration changes; OTHERS has flags that it does not change.
MANAGED = {
    "cloud-provider": ["aws", "external", "", "openstack"],
    "cloud-config": ["/etc/kubernetes/cloud.conf", "/etc/cloud/c.ini"],
    "external-cloud-volume-plugin": ["openstack"],
    "enable-leader-migration": ["true"],
    "leader-migration-config": ["/etc/migration/c.yaml"],
    "feature-gates": [
        "CloudDualStackNodeIPs=true",
        "X=true,DisableCloudProviders=true",
        "X=true, InTreePluginAWSUnregister=true",
        "X=false",
    ],
    "enable-admission-plugins": ["NodeRestriction,PersistentVolumeLabel", "PersistentVolumeLabel", "NodeRestriction"],
}
OTHERS = {
    "v": ["2"],
    "profiling": ["false"],
    "audit-log-path": ["/var/log/audit.log"],
    "tls-min-version": ["VersionTLS12"],
    "allocate-node-cidrs": ["true"],
}


class Tally:
    """The number of texts for each result, with the first examples of each wrong result."""

    def __init__(self, title: str) -> None:
        self.title, self.ways, self.examples = title, Counter[str](), dict[str, list[Any]]()

    def add(self, way: str, *example: Any) -> None:
        self.ways[way] += 1
        if example and len(self.examples.setdefault(way, [])) < 3:
            self.examples[way].append(example)

    def attempt(self, check: Callable[..., tuple[Any, ...]], *arguments: Any) -> None:
        """Add the result that the check returns. A crash is also a result; its example is the check's arguments."""
        try:
            self.add(*check(*arguments))
        except Exception:  # a crash is what the tests count
            self.add("crash", *arguments, traceback.format_exc())

    def judge(self, least: int, refused: float) -> None:
        """Print the results. Fail for a wrong text, a crash, too many refused texts, or fewer texts than `least`."""
        total = sum(self.ways.values())
        print(
            f"{self.title}: {total} texts: " + ", ".join(f"{number} {way}" for way, number in self.ways.most_common())
        )
        for way, examples in self.examples.items():
            for example in examples:
                print(f"  {way}:", *example, sep="\n")
        assert total >= least
        assert not [way for way in self.ways if way.startswith(("wrong", "crash"))]
        assert sum(number for way, number in self.ways.items() if way.startswith("refused")) <= refused * total


def rewritten(data: Any) -> str:
    """Return data as written by a program that reads and writes the whole file."""
    return str(yaml.dump(data, Dumper=DUMPER, default_flow_style=False))


def edits_by_others(add_argument: Edit) -> list[Edit]:
    """Return edits that somebody may make in a migrated file before its rollback."""
    return [
        lambda text, data: text,
        lambda text, data: ("# later\n" + text) if not text.startswith(("%", "{")) else text,
        lambda text, data: text.replace("v1.30.4", "v1.30.5"),
        lambda text, data: rewritten(data),
        add_argument,
    ]
