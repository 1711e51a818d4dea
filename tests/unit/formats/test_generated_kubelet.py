# SPDX-License-Identifier: Apache-2.0
"""What is read of generated KubeletConfigurations: settings on the host by plain Python, gates on the controller."""

from __future__ import annotations

import base64
import random
from typing import Any

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.host import settings
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import gates

from tests import drawn

from .conftest import Kubernetes
from .generated import Tally
from .writer import Writer

TEXTS = drawn.number(4000)
PATH = "/var/lib/kubelet/config.yaml"
GATES = ("DisableCloudProviders", "CloudDualStackNodeIPs", "InTreePluginAWSUnregister", "X", "SidecarContainers")


def configuration(chance: random.Random) -> dict[str, Any]:
    data: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}},
        "clusterDNS": ["10.96.0.10"], "staticPodPath": chance.choice(["/etc/kubernetes/manifests", "/etc/pods"]),
        "healthzPort": chance.choice([10248, 20248, None]), "healthzBindAddress": chance.choice(["127.0.0.1", "::1"]),
        "port": chance.choice([10250, None, 20250]), "podLogsDir": chance.choice(["/var/log/pods", "/data/pods"]),
        "containerRuntimeEndpoint": chance.choice(["unix:///run/containerd/containerd.sock", ""]),
        "featureGates": {gate: chance.random() < 0.5 for gate in chance.sample(GATES, chance.choice([0, 1, 3]))},
    }  # fmt: skip
    kept = [key for key in data if key in ("apiVersion", "kind") or chance.random() < 0.7]
    if chance.random() < 0.3:
        chance.shuffle(kept)
    return {key: data[key] for key in kept}


def again(chance: random.Random, text: str) -> str:
    """The text with a key twice, with a value on the next line, or with a tag."""
    if (
        text.lstrip("-#\r\n abcdefghijklmnopqrstuvwxyzYAML%.1").startswith(("{", "["))
        or "\n---" in text.rstrip()
        or "\n..." in text
    ):
        return text
    line = chance.choice(
        [
            "port: 1\n",
            "port: null\n",
            "staticPodPath: >-\n  /a\n",
            "podLogsDir:\n  /b\n",
            "port: !!int 2\n",
            "healthzPort : 3\n",
        ]
    )
    return text.rstrip() + "\n" + line


def test_generated_kubelet_configurations(kubernetes: Kubernetes) -> None:
    chance, tally = random.Random("kubelet"), Tally("KubeletConfiguration")
    for _ in range(TEXTS):
        text, version = Writer(chance).document(configuration(chance)), chance.choice([(1, 29), (1, 31), (1, 33)])
        text = again(chance, text) if chance.random() < 0.3 else text
        tally.attempt(read, kubernetes, text, version)
    tally.judge(TEXTS, 0)


def read(kubernetes: Kubernetes, text: str, version: tuple[int, int]) -> tuple[Any, ...]:
    data = kubernetes.load(text)
    found = settings.scalars(text)
    for key in settings.KUBELET_KEYS:
        value = None if data.get(key) is None else str(data[key])
        if (found.get(key) or None) != (value or None):
            return "wrong settings", text, key, found.get(key), value
    plan: dict[str, Any] = {"problems": [], "warnings": []}
    facts: Any = {
        "kubelet": {"config_files": [PATH]},
        "files": {PATH: {"exists": True, "content": base64.b64encode(text.encode()).decode()}},
    }
    gates.check_kubelet(plan, "w-1", facts, version)
    items = [f"{name}={str(value).lower()}" for name, value in (data.get("featureGates") or {}).items()]
    dead = {item for item, _ in versions.dead_gates("kubelet", ",".join(items), version)}
    if (
        plan["problems"]
        or len(plan["warnings"]) != len(dead)
        or not all(any(item in warning for warning in plan["warnings"]) for item in dead)
    ):
        return "wrong gates", text, plan, dead
    return ("right",)
