# SPDX-License-Identifier: Apache-2.0
"""Which Pods `ccm status` queries, at which port, and which of them leads."""

from __future__ import annotations

import msgspec
import pytest

from ccm.commands.asking.cluster_objects import Pod
from ccm.commands.status import status_page_rules as rules
from ccm.engine.objects import Lease


def pod(name="ccm-x", node="cp1", *arguments):
    containers = [{"name": "ccm", "args": list(arguments)}]
    body = {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"nodeName": node, "containers": containers},
    }
    return msgspec.convert(body, Pod)


def lease(holder):
    return msgspec.convert({"spec": {"holderIdentity": holder}}, Lease)


@pytest.mark.parametrize(
    ("url", "server", "path"),
    [
        ("https://127.0.0.1:10258", "https://127.0.0.1:10258", "/statusz"),
        ("https://[::1]:10258/", "https://[::1]:10258", "/statusz"),
        ("https://ccm.example/proxy/statusz", "https://ccm.example", "/proxy/statusz"),
    ],
)
def test_the_page_of_a_url(url, server, path):
    assert rules.page_url(url) == (server, path)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:10258",
        "127.0.0.1:10258",
        "https://",
        "https://a:b@x",
        "https://x?y=1",
        "https://x:y",
        "https:///",
    ],
)
def test_a_url_that_would_send_credentials_astray_is_refused(url):
    with pytest.raises(ValueError):
        rules.page_url(url)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://127.0.0.1:1", True),
        ("https://127.9.9.9:1", True),
        ("https://[::1]:1", True),
        ("https://localhost:1", True),
        ("https://localhost.example:1", False),
        ("https://127.0.0.1.example", False),
        ("https://10.0.0.1", False),
    ],
)
def test_only_this_machine_is_not_verified(server, expected):
    assert rules.is_loopback(server) is expected


@pytest.mark.parametrize(
    ("arguments", "port"),
    [
        ((), 10258),
        (("--cloud-provider=sim", "--secure-port=10999"), 10999),
        (("--secure-port", "10999"), 10999),
        (("--secure-port=abc",), 10258),
    ],
)
def test_the_port_of_a_pod(arguments, port):
    assert rules.port_of(pod("ccm-x", "cp1", *arguments)) == port


@pytest.mark.parametrize(
    ("phase", "annotations", "why"),
    [
        ("Running", {}, ""),
        ("Pending", {}, "it is Pending, so no process answers"),
        ("", {}, "it is not running, so no process answers"),
        ("Running", {"kubernetes.io/config.mirror": "5ca1ab1e"}, "it is a static Pod"),
    ],
)
def test_only_the_process_of_a_pod_that_no_kubelet_created_gets_credentials(phase, annotations, why):
    body = {"metadata": {"name": "ccm-x", "annotations": annotations}, "status": {"phase": phase}}
    said = rules.why_not_asked(msgspec.convert(body, Pod))
    assert said.startswith(why) and bool(said) == bool(why)


@pytest.mark.parametrize(
    ("holder", "host"), [("cp1_0d3c", "cp1"), ("my_host_0d3c", "my_host"), ("plain", "plain"), ("", ""), (None, "")]
)
def test_the_host_of_the_leader(holder, host):
    assert rules.host_of(lease(holder)) == host


def test_without_a_lease_nobody_leads():
    assert rules.host_of(None) == "" and not rules.is_on(pod("", ""), "")


def test_the_leaders_pod_comes_first():
    pods = [pod("ccm-a", "cp1"), pod("ccm-b", "cp2"), pod("ccm-c", "cp3.example.com")]
    assert [each.metadata.name for each in rules.in_order(pods, "cp2")] == ["ccm-b", "ccm-a", "ccm-c"]
    assert rules.in_order(pods, "cp3")[0].metadata.name == "ccm-c"
    assert rules.in_order(pods, "ccm-b")[0].metadata.name == "ccm-b"
    assert [each.metadata.name for each in rules.in_order(pods, "")] == ["ccm-a", "ccm-b", "ccm-c"]
