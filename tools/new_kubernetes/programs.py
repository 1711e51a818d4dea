# SPDX-License-Identifier: Apache-2.0
"""Compares the programs of two Kubernetes minors (`make new-kubernetes-cluster VERSION=1.38`):

    python -m tools.new_kubernetes.programs VERSION [--against VERSION]

Compares what the programs print about themselves: flags, feature gates, admission plugins, controllers, the API
versions that kube-apiserver serves, and the configuration that kubeadm writes. Names that this project uses come first.
The rows of plugins/module_utils/facts/versions.py are checked against what the programs print, as far as help texts
show it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/bed"))

from bed import binaries, minors, paths, versions  # noqa: E402
from bed.errors import BedError  # noqa: E402
from bed.minors import Minor, minor_of, show  # noqa: E402
from bed.progress import Progress  # noqa: E402
from tools.docs.kubernetes_versions import load  # noqa: E402

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
NEEDED = (*COMPONENTS, "kubeadm", "kubectl", "etcd")
#: Flags that concern this project although the collection does not manage them: their names contain one of these
#: words.
_OURS = re.compile(
    r"cloud|provider|node-ip|hostname-override|register|taint|leader-migration|cluster-cidr|route|serving-cert|-service-|controllers"
)
_OUR_GATES = re.compile(r"(?!DRA).*(?:Cloud|Provider|NodeI|LoadBalancer|Taint)")
_FLAG = re.compile(r"^ +(?:-\w, )?--([\w.-]+)(?: (?!  )\S+)? {2,}(.*)", re.MULTILINE)
_GATE = re.compile(r"^[ \t]+(?:kube:)?(\w+)=true\|false \((\w+) - default=(\w+)\)", re.MULTILINE)
_DEPRECATED = re.compile(r"\bdeprecated\b", re.IGNORECASE)
#: The folders that are searched for the API versions that this project uses.
_SOURCES = ("runtime/ccm", "plugins", "roles", "molecule/common")


@dataclass(frozen=True)
class Release:
    """What the programs of one minor print about themselves. `flags` and `gates`: program -> name -> what it prints."""

    minor: Minor
    flags: dict[str, dict[str, str]]
    gates: dict[str, dict[str, str]]
    plugins: set[str] = field(default_factory=set)
    controllers: set[str] = field(default_factory=set)
    apis: set[str] = field(default_factory=set)
    kubeadm: set[str] = field(default_factory=set)


def flags(text: str) -> dict[str, str]:
    """Return each flag of a help text, with "deprecated" or ""."""
    return {name: "deprecated" if _DEPRECATED.search(about) else "" for name, about in _FLAG.findall(text)}


def gates(text: str) -> dict[str, str]:
    """Return each feature gate of a help text, with its stage and default.

    Help texts list only Alpha and Beta gates, so a gate that becomes GA or deprecated looks as if it were gone.
    """
    return {name: f"{stage.lower()}, {default}" for name, stage, default in _GATE.findall(text)}


def listed(text: str, after: str) -> set[str]:
    """Return the names, separated by commas, that follow a heading in a help text."""
    found = re.search(re.escape(after) + r"\s*([\w-]+(?:, [\w-]+)*)", text)
    return set(found[1].split(", ")) if found else set()


def of_programs(folder: Path, minor: Minor) -> Release:
    helps = {name: output(folder / name, "--help") for name in COMPONENTS}
    return Release(
        minor=minor,
        flags={name: flags(text) for name, text in helps.items()},
        gates={name: gates(text) for name, text in helps.items()},
        plugins=listed(helps["kube-apiserver"], "Comma-delimited list of admission plugins:"),
        controllers=listed(helps["kube-controller-manager"], "All controllers:"),
        apis=served(folder),
        kubeadm=set(
            re.findall(r"^apiVersion: (\S+)", output(folder / "kubeadm", "config", "print", "init-defaults"), re.M)
        ),
    )


def output(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def served(folder: Path) -> set[str]:
    """Start the kube-apiserver of `folder` and return the API versions that it serves."""
    os.environ["KUBEBUILDER_ASSETS"] = str(folder)
    from tests.integration.cluster import ApiServer

    with tempfile.TemporaryDirectory() as scratch:
        server = ApiServer(Path(scratch))
        try:
            return set(server.kubectl("api-versions").split())
        finally:
            server.close()


def used_apis(apis: set[str]) -> set[str]:
    """Return the API versions among `apis` that this project's sources name; v1 always counts as named."""
    files = (path for place in _SOURCES for path in (ROOT / place).rglob("*") if path.suffix in (".py", ".yml", ".j2"))
    text = "\n".join(path.read_text() for path in files)
    return {api for api in apis if api == "v1" or re.search(rf"(?<![\w./]){re.escape(api)}(?![\w/])", text)}


def changes(old: dict[str, str], new: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each name that differs, and how: gone, new, or changed."""
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield name, "gone"
        elif name not in old:
            yield name, f"new ({new[name]})" if new[name] else "new"
        elif old[name] != new[name]:
            yield name, f"now {new[name] or 'not deprecated'}, was {old[name] or 'not deprecated'}"


def concerns_us(flag: str, managed: tuple[str, ...]) -> bool:
    return flag in managed or bool(_OURS.search(flag))


def disagreements(release: Release, facts: tuple[Any, ...]) -> Iterator[str]:
    """Yield a line about each row of the table of facts that the programs contradict."""
    for fact in facts:
        if fact.component not in release.flags:
            continue
        gone = fact.gone_in is not None and release.minor >= fact.gone_in
        known, what = None, f"--{fact.flag}"
        if fact.kind == "flag" and (gone or fact.no_effect_in or not fact.deprecated_in):
            # pflag's help hides many deprecated flags.
            known = fact.flag in release.flags[fact.component]
        elif fact.kind == "feature gate" and "=" not in fact.value and gone:
            # A gate that still exists may be GA or deprecated, which no help text shows.
            known, what = fact.value in release.gates[fact.component], f"feature gate {fact.value}"
        elif fact.kind == "admission plugin" and (gone or fact.deprecated_in):
            known, what = fact.value in release.plugins, f"admission plugin {fact.value}"
        elif fact.flag == "controllers" and release.controllers and fact.value.endswith("-controller"):
            # Help texts do not list aliases.
            known, what = fact.value in release.controllers, f"controller {fact.value}"
        if known is not None and known == gone:
            says = "is gone" if gone else "is there"
            yield f"{fact.component}: {what} {says}, says the table; the program {'knows it' if known else 'does not'}"


def report(old: Release, new: Release, managed: tuple[str, ...], facts: tuple[Any, ...], apis: set[str]) -> str:
    """Return the whole report as text. `apis`: the API versions that this project uses."""
    lines = [f"Kubernetes {show(old.minor)} -> {show(new.minor)}"]

    def part(title: str, rows: list[str], none: str = "nothing") -> None:
        lines.extend(["", f"{title}:", *(f"  {row}" for row in rows or [none])])

    flags_changed = flag_rows(old, new)
    gates_changed = gate_rows(old, new)
    in_table = {fact.value.partition("=")[0] for fact in facts if fact.kind == "feature gate"}
    ours = {name for name, _ in gates_changed if name in in_table or _OUR_GATES.match(name)}
    part("Flags that concern us", [text for name, text in flags_changed if concerns_us(name, managed)])
    # kube-controller-manager does not start if --controllers names one that is gone, even to disable it.
    part("Controllers of kube-controller-manager that are gone", sorted(old.controllers - new.controllers))
    part("Feature gates that concern us", [text for name, text in gates_changed if name in ours])
    part("API versions that we use and the newer one does not serve", sorted((apis & old.apis) - new.apis))
    part("Configuration that kubeadm writes", sorted(new.kubeadm), "unknown")
    part("Table of facts (plugins/module_utils/facts/versions.py)", list(disagreements(new, facts)), "agrees")
    for title, before, after in (
        ("Admission plugins", old.plugins, new.plugins),
        ("New controllers of kube-controller-manager", old.controllers & new.controllers, new.controllers),
        ("API versions", old.apis, new.apis),
    ):
        gone, added = sorted(before - after), sorted(after - before)
        part(title, [*(f"{name}  gone" for name in gone), *(f"{name}  new" for name in added)])
    part("Other flags", [text for name, text in flags_changed if not concerns_us(name, managed)])
    part("Other feature gates", [text for name, text in gates_changed if name not in ours])
    return "\n".join(lines)


def flag_rows(old: Release, new: Release) -> list[tuple[str, str]]:
    """Return the name of each flag that changed, and a line about it."""
    return [
        (flag, f"{component}  --{flag}  {what}")
        for component in COMPONENTS
        for flag, what in changes(old.flags[component], new.flags[component])
    ]


def gate_rows(old: Release, new: Release) -> list[tuple[str, str]]:
    """Return the name of each feature gate that changed, and one line for all components with the same change."""
    alike: dict[tuple[str, str], list[str]] = {}
    for component in COMPONENTS:
        for gate, what in changes(old.gates[component], new.gates[component]):
            # Help texts show no gate that is GA (locked, or soon to be), deprecated or removed.
            alike.setdefault((gate, "GA, deprecated or removed" if what == "gone" else what), []).append(component)
    return [
        (gate, f"{gate}  {what}" + ("" if len(where) == len(COMPONENTS) else f"  ({', '.join(where)})"))
        for (gate, what), where in sorted(alike.items())
    ]


def cached() -> dict[Minor, Path]:
    """Return the minors whose programs are all in the bed's cache, each with the folder of its newest patch."""
    folders = (paths.cache() / "kubernetes").glob("v*.*.*")
    ordered = sorted(folders, key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)])
    return {minor_of(folder.name): folder for folder in ordered if not lacks(folder)}


def lacks(folder: Path) -> list[str]:
    return [name for name in NEEDED if not os.access(folder / name, os.X_OK)]


def programs(minor: Minor) -> Path:
    """Return a folder with the programs of a minor: cached, downloaded, or built. Raises BedError."""
    if minor in cached():
        return cached()[minor]
    progress = Progress()
    for version in versions.VERSIONS.values():
        if minor_of(version.kubernetes) == minor:
            return binaries.ensure(version, progress)
    try:
        return binaries.ensure(minors.find_or_write(minor, progress), progress)
    except BedError as error:
        place = paths.cache() / "kubernetes" / f"v{show(minor)}.N"
        raise BedError(
            f"no programs of Kubernetes {show(minor)}: {error}\nYou may put those of its release ({', '.join(NEEDED)}) "
            f"into {place}, with N its patch."
        ) from error


def base(minor: Minor, known: dict[Minor, Path]) -> Minor:
    """Return the minor to compare with: the newest older one in `known`, else the next newer one. Raises BedError."""
    others = sorted(set(known) - {minor})
    if not others:
        raise BedError("no other minor is in the cache to compare with: run `make binaries`")
    return max((other for other in others if other < minor), default=others[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", metavar="VERSION", help="a minor, such as 1.38")
    parser.add_argument(
        "--against", metavar="VERSION", default="", help="another minor; default: the newest older one here"
    )
    asked = parser.parse_args()
    table: Any = load()
    sys.path.insert(0, str(ROOT / "plugins/module_utils/facts"))
    managed: tuple[str, ...] = __import__("flags").MANAGED_FLAGS
    try:
        minor = minor_of(asked.version)
        other = minor_of(asked.against) if asked.against else base(minor, cached())
        old, new = (of_programs(programs(each), each) for each in sorted((minor, other)))
    except BedError as error:
        print(error, file=sys.stderr)
        return 1
    print(report(old, new, managed, table.FACTS, used_apis(old.apis | new.apis)))
    if minor > table.SUPPORTED[1]:
        print(f"\nThe table of facts ends with {table.show(table.SUPPORTED[1])}: MAINTAINERS.md says what to do now.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
