# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the running processes with the files: do the files to edit really decide how a component runs?

An edit is safe only if the parsed flags are the flags of the process. With a shell, a wrapper, an unread file or a unit of another
name, an edit would be a guess, and a component without an edit would wrongly count as migrated.

Pure; runs on the Ansible controller. It returns problems as sentences; the planners add them to the plan.
"""

from __future__ import annotations

from collections import Counter
from typing import Iterable, List, Optional, Sequence, Tuple, Union, cast

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import compare, unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit import CommandLine
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.host_facts import readable
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import ComponentFacts, FileFacts, HostFacts, KubeletFacts, UnitFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Target

Running = Union[KubeletFacts, ComponentFacts]


def changed_since(running: Running, files: Iterable[FileFacts]) -> bool:
    """Return whether one of the files was changed after the process was started, so that it explains a difference."""
    return any(entry.get("changed", 0.0) > running.get("started", 0.0) for entry in files if entry["exists"])


def unexplained(host: str, component: str, running: Running, written: List[str], paths: List[str]) -> str:
    """Return the problem of a process whose flags differ from those in its files, '' if they are the same.

    C(running) has the C(pid) and the managed C(flags) of the process. C(written) are the managed flags in the files at C(paths).
    """
    if running["flags"] == written:
        return ""
    more, less = Counter(running["flags"]) - Counter(written), Counter(written) - Counter(running["flags"])
    if not more and not less:  # the same flags in another order; the last one counts
        more, less = Counter(running["flags"]), Counter(written)
    return ("{0}: process {1} ({2}) runs with {3}, but {4} gives it {5}. No file changed after the process started, so something else sets "
            "its flags and an edit may have no effect. Find the wrapper or file that sets the flag, correct the files by hand, restart the "
            "component, then run again".format(
                host, running["pid"], component, show(more.elements()), " with ".join(paths), show(less.elements())))


def others(host: str, component: str, running: Running, argv: Sequence[str] = ()) -> str:
    """Return the problem of a process whose unmanaged arguments differ from those in its files, '' if they are the
    same.

    C(argv) is the command line in a static Pod's manifest. For a unit, the host has compared them.
    """
    difference = running.get("difference", "")
    arguments = cast(Sequence[str], running.get("arguments", ()))  # a kubelet has none
    if argv and arguments:
        difference = of_pod(component, argv, arguments)
    if not difference:
        return ""
    return ("{0}: process {1} ({2}) does not run with the arguments in its files: {3}. No file changed after the process started, so something else "
            "sets its arguments and an edit could lose some. Find the file or the wrapper that sets them, correct the files by hand, restart "
            "the component, then run again".format(host, running["pid"], component, readable(difference)))


def of_pod(component: str, argv: Sequence[str], running: Sequence[str]) -> str:
    """Return the first difference between a container's command line in its manifest and its process, '' if there is none.

    The kubelet replaces C($(NAME)), so such words may differ. A command line of a wrapper is not compared.
    """
    if not argv or argv[0].rpartition("/")[2] != component:
        return ""
    expected = [unit.Argument(word, "", 0, 0, "", exact="$(" not in word) for word in argv[1:]]
    return compare.first_difference(expected, running[1:], lambda argument: "in its manifest")


def of_unit(host: str, component: str, process: Optional[Running], facts: HostFacts, unit: Union[UnitFacts, KubeletFacts],
            written: List[str], line: CommandLine) -> str:
    """Return the problem of a unit's process whose arguments do not come from the unit's files.

    Return '' if they do, if the unit has no process, or if a file was changed after the process was started.
    """
    paths = [path for path in unit["unit_files"] + unit["environment_files"] if facts["files"][path]["exists"]]
    if process is None or changed_since(process, [facts["files"][path] for path in paths]):
        return ""
    problem = unexplained(host, component, process, written, paths)
    return problem + compare.of_systemd(line) if problem else others(host, component, process)


def undefined(host: str, facts: HostFacts, component: str, version: Tuple[int, int], target: Target, why: str) -> List[str]:
    """Return the problems of processes whose flags must change, although no edit can change them.

    C(why): the end of each problem, which says why there is nothing to edit, and what to do.
    """
    seen = list(facts.get("unrecognised", []))
    if component in facts["components"]:
        running = facts["components"][component]
        seen.append({"component": component, "pid": running["pid"], "flags": running["flags"], "place": "is a component of this host"})
    return ["{0}: process {1} ({2}) {3} and runs with {4}, which must change: {5}. {6}".format(
        host, process["pid"], component, process["place"], show(process["flags"]), _reasons(process["flags"], component, version, target),
        why) for process in seen if process["component"] == component and needs(process["flags"], component, version, target)]


def needs(flags: List[str], component: str, version: Tuple[int, int], target: Target) -> bool:
    """Return whether a component with these flags must be changed."""
    return bool(target(component, find_flags(flags), version))


def _reasons(flags: List[str], component: str, version: Tuple[int, int], target: Target) -> str:
    return "; ".join(dict.fromkeys(change.why for change in target(component, find_flags(flags), version)))


def show(flags: Iterable[str]) -> str:
    """Return flags for people to read; an empty value is shown as ''."""
    return " ".join(flag + "''" if flag.endswith("=") else flag for flag in flags) or "no cloud flag"
