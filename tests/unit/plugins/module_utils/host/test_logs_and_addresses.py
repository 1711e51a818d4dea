# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files are read only where root placed them, logs say why a component failed, and only this host's addresses get requests."""

from __future__ import annotations

import os

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import logs, machine, probes
from ansible_collections.outoftree.ccm.plugins.module_utils.host import settings as _settings

COMPONENT = "kube-controller-manager"


@pytest.fixture
def container_log(tmp_path):
    def write(number, written, text):
        path = tmp_path / "kube-system_{0}-node_{1}".format(COMPONENT, "a" * 32) / COMPONENT / "{0}.log".format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (written, written))

    return write


def test_the_last_words_are_those_of_the_newest_container_that_said_any(container_log, tmp_path):
    container_log(0, 100, "2026-11-21T12:00:00Z stderr F of an older process\n")
    container_log(1, 200, "2026-11-21T12:00:01Z stderr F Usage:\n2026-11-21T12:00:01Z stderr F Error: unknown flag\n")
    container_log(2, 201, "")
    assert logs.pod_log(COMPONENT, since=150, logs=str(tmp_path)) == ["Usage:", "Error: unknown flag"]


def test_what_was_said_before_the_change_is_no_explanation(container_log, tmp_path):
    container_log(0, 100, "2026-11-21T12:00:00Z stderr F of an older process\n")
    assert logs.pod_log(COMPONENT, since=150, logs=str(tmp_path)) == []


# -- only this host gets requests --------------------------------------------------------------------------------------


@pytest.fixture
def connected(monkeypatch):
    """Return a list that gets the address of each connection. All connections are refused."""
    made = []

    def connect(where, timeout=None, *unused):
        made.append(where)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(probes.socket, "create_connection", connect)
    return made


ELSEWHERE = ("169.254.169.254", "192.0.2.1", "2001:db8::1", "example.com", "127.0.0.1.example.com", "0x7f.1")


@pytest.mark.threat("pod-cannot-steer-the-collection")
@pytest.mark.parametrize("address", ELSEWHERE)
def test_a_component_is_asked_on_this_host_alone(connected, address, tmp_path):
    authority = tmp_path / "ca.crt"
    authority.write_text("")
    settings = {"healthz_address": address, "healthz_port": "10248"}
    assert "not an address of this host" in probes.kubelet_health(settings)
    assert "not an address of this host" in probes.component_health("kube-scheduler", ["kube-scheduler", "--bind-address=" + address])
    argv = ["kubelet", "--rotate-server-certificates", "--address=" + address, "--client-ca-file=" + str(authority)]
    assert probes.kubelet_serving(argv, [])["problem"]
    assert connected == []


@pytest.mark.parametrize("address", ["", "0.0.0.0", "127.0.0.1", "127.0.0.53", "localhost", "::1", "::"])
def test_the_loopback_is_this_host(connected, address):
    assert "refused" in probes.component_health("kube-scheduler", ["kube-scheduler", "--bind-address=" + address])
    assert len(connected) == 1 and connected[0][1] == 10259


def test_an_address_of_an_interface_is_this_host(monkeypatch):
    monkeypatch.setattr(machine, "_own_addresses", lambda: ["10.89.0.5", "fe80::1"])
    assert machine.is_local("10.89.0.5") and machine.is_local("FE80:0::1") and not machine.is_local("10.89.0.6")


@pytest.mark.parametrize("port", ["", "00", "65536", "http", "-1", "10248/x"])
def test_a_port_that_is_none(connected, port):
    assert "is not a port" in probes.kubelet_health({"healthz_address": "127.0.0.1", "healthz_port": port})
    assert port == "" or "is not a port" in probes.component_health("kube-apiserver", ["kube-apiserver", "--secure-port=" + port])
    assert connected == []


@pytest.mark.threat("pod-cannot-steer-the-collection")
def test_the_kubelets_configuration_is_read_only_where_root_put_it(tmp_path):
    """A Pod may set a trap in an emptyDir: root owns that folder, and everybody may write to it."""
    (tmp_path / "emptydir").mkdir()
    (tmp_path / "emptydir").chmod(0o777)
    os.mkfifo(str(tmp_path / "fifo"))
    for path in (tmp_path / "emptydir" / "kubelet.yaml", tmp_path / "kubelet.yaml"):
        path.write_text("staticPodPath: /trap\npodLogsDir: /logs/\nhealthzPort: 1\n")
    default = _settings.kubelet_settings([])
    for name in ("emptydir/kubelet.yaml", "fifo", "none"):
        assert _settings.kubelet_settings(["kubelet", "--config=" + str(tmp_path / name)]) == default
    found = _settings.kubelet_settings(["kubelet", "--config=" + str(tmp_path / "kubelet.yaml")])
    assert (found["static_pod_path"], found["pod_logs"], found["healthz_port"]) == ("/trap", "/logs", "1")


def test_a_link_in_a_folder_of_logs_is_followed_only_where_root_made_it(container_log, tmp_path):
    container_log(0, 300, "2026-11-21T12:00:00Z stderr F the real words\n")
    folder = tmp_path / "kube-system_{0}-node_{1}".format(COMPONENT, "a" * 32) / COMPONENT
    real = tmp_path / "docker.log"
    (folder / "0.log").rename(real)
    (folder / "0.log").symlink_to(real)
    assert logs.pod_log(COMPONENT, since=150, logs=str(tmp_path)) == ["the real words"], "as cri-dockerd has them"
    if os.geteuid() == 0:
        os.lchown(str(folder / "0.log"), 65534, 65534)
        assert logs.pod_log(COMPONENT, since=150, logs=str(tmp_path)) == []
