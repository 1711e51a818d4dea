# SPDX-License-Identifier: Apache-2.0
"""A migration and its rollback cancel out: what others wrote stays, and nothing of the product's edits is left.

A seed determines each host: its layout, its flags, and then runs (some are killed) with edits by others between them. The others'
edits are made on a second host, too, which no run ever changes: after the rollback, the first host must equal the second.
"""

from __future__ import annotations

import base64
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import MANAGED_FLAGS
from ansible_collections.outoftree.ccm.plugins.module_utils.host import journal
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback import make_rollback_plan

SEEDS = int(os.environ.get("ROLLBACK_SEEDS", "100"))
KCM, API = (f"/etc/kubernetes/manifests/{name}.yaml" for name in ("kube-controller-manager", "kube-apiserver"))
FLAGS_ENV, DEFAULT, K3S = "/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/rancher/k3s/config.yaml"
VERSION = "v1.29.9"
Texts = dict[str, "str | None"]


class Story(list[Any]):
    """What happened to a host, one event a line."""

    def __repr__(self) -> str:
        return "\n" + "\n".join(map(str, self)) + "\n"


OURS = re.compile(r'"?(--)?({0})[=: ][^\s"]*"?'.format("|".join(MANAGED_FLAGS)))


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal.os, "fsync", lambda descriptor: None)


def kubeadm_files(random: random.Random, fixture_text: Any, control_plane: bool) -> Texts:
    cloud = random.choice(["", " --cloud-provider=", " --cloud-provider=aws", " --cloud-provider=aws --cloud-config=/etc/kubernetes/cloud.conf"])
    ends = random.choice(["\n", "\r\n"])
    texts: Texts = {FLAGS_ENV: f'# of the installer{ends}KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1{cloud}"{ends}',
                    DEFAULT: random.choice([None, "# ours\nKUBELET_EXTRA_ARGS=\n", "KUBELET_EXTRA_ARGS=--v=1\n", "KUBELET_EXTRA_ARGS=--cloud-provider=aws\n"])}
    if DEFAULT in texts and "aws" in (texts[DEFAULT] or ""):
        texts[FLAGS_ENV] = f'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"{ends}'
    if random.random() < 0.15:
        texts[FLAGS_ENV] = None
    if control_plane:
        provider = random.choice(["", "aws", "gce"])
        for path in (KCM, API):
            text = fixture_text(f"kubeadm-1.36/{path.rpartition('/')[2]}").replace("v1.36.3", VERSION)
            texts[path] = text.replace("--cloud-provider=\n", f"--cloud-provider={provider}\n")
    return texts


# -- what others do -----------------------------------------------------------------------------------------------------


def comment(random: random.Random, path: str) -> Callable[[str], str]:
    word = f"# note {random.randrange(1000)}\n"
    return lambda text: word + text


def further_line(random: random.Random, path: str) -> Callable[[str], str]:
    name = f"OTHER{random.randrange(1000)}"
    line = f"{name}=1\n" if path in (FLAGS_ENV, DEFAULT) else f"# {name}\n"
    return lambda text: text + ("" if text.endswith("\n") else "\n") + line


def same_line(random: random.Random, path: str) -> Callable[[str], str]:
    """Return an edit beside the managed flags: another flag in their line of FLAGS_ENV, another line in other files."""
    flag = f"--v={random.randrange(10)}"
    if path == FLAGS_ENV:
        return lambda text: text.replace("--node-ip=10.0.0.1", f"--node-ip=10.0.0.1 {flag}")
    if path == K3S:
        return lambda text: text.replace("  - k3s.example.com\n", f"  - k3s.example.com\n  - {flag[4:]}.example.com\n")
    return lambda text: text.replace("    - --leader-elect=true\n", f"    - --leader-elect=true\n    - {flag}\n")


def upgrade(random: random.Random, path: str) -> Callable[[str], str]:
    return lambda text: text.replace(VERSION, "v1.30.4")


def rewritten(random: random.Random, path: str) -> Callable[[str], str]:
    """Return the edit of a tool that writes the whole file again, without a flag and with other comments."""
    return lambda text: text.replace("    - --leader-elect=true\n", "").replace("# of the installer", "# of the installer, again")


EDITS = (comment, further_line, same_line, upgrade, rewritten)


def plain(path: str, text: str | None) -> Counter[str]:
    """Return the lines of a text, without order, without managed flags, and without lines that are empty then."""
    lines = OURS.sub("", text or "").replace('"', "").replace("'", "").splitlines()
    words = (" ".join(line.split()).rstrip("-").strip() for line in lines)
    return Counter(line for line in words if line and not line.endswith("_ARGS="))


def flags(text: str | None) -> Counter[str]:
    return Counter("".join(match.group(0).strip('"').split()) for match in OURS.finditer(text or ""))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_forward_and_back_is_the_identity(seed: int, fixture_text: Any, host_facts: Any, tree_facts: Any, machine: Any, cluster_facts: Any) -> None:
    dice = random.Random(seed)
    layout = dice.choice(["kubeadm-cp", "kubeadm-worker", "kubeadm-worker", "k3s"])
    name = "cp-1" if layout != "kubeadm-worker" else "w-1"
    if layout == "k3s":
        texts: Texts = {path: base64.b64decode(entry["content"]).decode() for path, entry in tree_facts("k3s/server")["files"].items() if entry["exists"]}

        def build(now: Texts) -> Any:
            return tree_facts("k3s/server", name, changed=now)
    else:
        texts = kubeadm_files(dice, fixture_text, layout == "kubeadm-cp")

        def build(now: Texts) -> Any:
            return host_facts(name, {path: text for path, text in now.items() if text is not None})

    host, shadow = machine(build, texts), dict(texts)
    host.version = VERSION
    cluster = cluster_facts((name, "initialized"), version=VERSION, kubeadm="")
    told = Story([f"seed {seed}: {layout}"])
    planes = [name] if layout != "kubeadm-worker" else []
    others = False
    for unused in range(dice.randint(1, 5)):
        if dice.random() < 0.5:
            plan = make_plan({name: host.facts()}, cluster, planes)
            assert plan["go"], (told, plan["problems"])
            killed = dice.choice([-1, -1, 0, 1, 2, 3])
            told.append(f"migrate, killed after {killed}")
            host.carry_out(plan["hosts"][name], killed)
        else:
            path = dice.choice(sorted(path for path, text in texts.items() if text is not None and ".service" not in path) or [DEFAULT])
            edit = dice.choice(EDITS)(dice, path)
            before = host.texts[path]
            host.texts[path], shadow[path] = edit(host.texts[path] or ""), edit(shadow[path] or "")
            told.append(f"others: {edit.__qualname__.split('.')[0]} of {path}: {before!r} -> {host.texts[path]!r}")
            others = True
    for unused in range(dice.randint(0, 2)):
        plan = make_rollback_plan({name: host.facts()}, cluster, planes)
        assert plan["go"], (told, plan["problems"])
        told.append("rollback, killed")
        host.carry_out(plan["hosts"][name], dice.randint(0, 4))
    plan = make_rollback_plan({name: host.facts()}, cluster, planes)
    assert plan["go"], (told, plan["problems"])
    host.carry_out(plan["hosts"][name])
    assert journal.Journal(str(host.directory)).files == {}, told
    left = {path for path in {*host.texts, *shadow} if (host.texts.get(path) or "") != (shadow.get(path) or "")}
    assert others or not left, (told, left)
    for path in left:  # if others edited the lines with managed flags, a flag may be at another place in its line
        assert plain(path, host.texts.get(path)) == plain(path, shadow.get(path)), (told, path, host.texts.get(path), shadow.get(path), plan["table"])
        assert flags(host.texts.get(path)) == flags(shadow.get(path)), (told, path, host.texts.get(path), shadow.get(path), plan["table"])
    assert make_rollback_plan({name: host.facts()}, cluster, planes)["files"] == [], told


@pytest.mark.parametrize("seed", range(10))
def test_a_journal_that_is_lost_after_a_migration_is_named(seed: int, fixture_text: Any, host_facts: Any, machine: Any, cluster_facts: Any) -> None:
    dice = random.Random(seed)
    texts = kubeadm_files(dice, fixture_text, False)
    host = machine(lambda now: host_facts("w-1", {path: text for path, text in now.items() if text is not None}), texts)
    host.version = VERSION
    cluster = cluster_facts(("w-1", "initialized"), version=VERSION, kubeadm="", runtime={"exists": True, "managed": True})
    host.carry_out(make_plan({"w-1": host.facts()}, cluster, [])["hosts"]["w-1"])
    shutil.rmtree(host.directory)
    plan = make_rollback_plan({"w-1": host.facts()}, cluster, [])
    assert not plan["go"] and plan["problems"][0].startswith("w-1: its kubelet has --cloud-provider=external")
