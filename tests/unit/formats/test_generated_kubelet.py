# SPDX-License-Identifier: Apache-2.0
"""KubeletConfigurations, generated and written by hand: settings that a host reads, feature gates that the planner
reads."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
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
    """Return the text with one more line: a repeated key, a value on the next line, or a tag. A text in flow style, or
    with several documents, is returned unchanged."""
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


#: Handwritten texts: what may be around a key and its value.
AROUND = [
    "port: 1\n", "port : 1\n", "port:\t1\n", '"port": 1\n', "'port': 1\n", "port: 1 # c\n", "port: 1# c\n", "port: 1",
    "port: '1' # c\n", "port: 1\nport: 2\n", "port: 1\nport:\n", "port: &x 1\n", "port: !!int 2\n",
    'staticPodPath: "/a\\"b" # c\n', "staticPodPath: '/a''b'\n", 'staticPodPath: "/a # b"\n', "staticPodPath: /a b\n",
    "staticPodPath: /a # b\nport: 2\n", "staticPodPath:\n  /a\nport: 2\n", "staticPodPath: !!str &x /a\n",
    "staticPodPath: >-\n  /a\n", "staticPodPath: |2-\n  /a\nport: 1\n", "staticPodPath: >- # c\n  /a\n",
    "staticPodPath: |-\n  a: b\n", "staticPodPath: >-\n  - /a\n", "staticPodPath: |\nport: 1\n",
    "port:\n  a: 1\naddress: ::1\n",
    "staticPodPath:  # c\n  /a\n", "staticPodPath:\n  # c\n  /a\n", "staticPodPath:\n\n  /a\n",
    "staticPodPath:\n  '/a'\n", "staticPodPath: ''\n", "port: null\n", "port: ~\n", "port: Null\n", "port: NULL # c\n",
    "port:\n", "port:\nhealthzPort: 3\n", "port:\n- 1\nhealthzPort: 3\n", "port:\n# c\nhealthzPort: 3\n",
    "featureGates:\n  port: 1\nhealthzPort: 3\n", "---\nport: 1\n---\nport: 2\n", "# c\n---\nport: 1\n", "---\n", "",
    "%YAML 1.1\n---\nport: 1\n", "port: 1\n...\nport: 2\n", "--- # c\nport: 1\n", "\ufeffport: 1\n",
    "# c\nport: 1\n\n# d\naddress: ::1\n", "port: 1\r\naddress: ::1\r\n", '{"port": 1, "port": 2}\n', '  {"port": 1}\n',
    '{"port": 1, "staticPodPath": "/a", "address": null, "authentication": {"port": 2}, "clusterDNS": ["a"]}',
    '# c\n{"port": 1}\n---\n{"port": 2}\n', '{"port": 1,\n# c\n"healthzPort": 2}\n',
]  # fmt: skip


@pytest.mark.parametrize("text", AROUND)
def test_a_setting_is_the_one_that_kubernetes_reads(kubernetes: Kubernetes, text: str) -> None:
    data, found = kubernetes.load(text) or {}, settings.scalars(text)
    values = {key: data.get(key) for key in settings.KUBELET_KEYS}
    expected = {key: str(value) for key, value in values.items() if isinstance(value, str | int) and value != ""}
    assert {key: found[key] for key in values if found.get(key)} == expected


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        ([], "none"),
        (["--port=1"], "1"),
        (["--port", "1"], "1"),
        (["--port"], "none"),
        (["--port=1", "--port", "2"], "2"),
        (["--port=1", "--port"], "1"),
        (["x", "--port=", "y"], ""),
        (["--ports=1"], "none"),
    ],
)
def test_the_last_value_of_an_option_counts(argv: list[str], value: str) -> None:
    assert settings.option(["kubelet", *argv], "port", "none") == value


def test_flags_of_a_kubelet_count_more_than_its_files() -> None:
    argv = ["kubelet", "--config=/nowhere", "--pod-manifest-path=/a/", "--healthz-port=1", "--port=2", "--address=::1"]
    changed = {"static_pod_path": "/a", "healthz_port": "1", "port": "2", "address": "::1"}
    assert settings.kubelet_settings(argv) == {**settings.KUBELET_DEFAULTS, **changed}
    assert settings.kubelet_settings([*argv[:2], "--pod-manifest-path=/"]) == settings.KUBELET_DEFAULTS
