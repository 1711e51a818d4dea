# SPDX-License-Identifier: Apache-2.0
"""A user's mistake leads to one message that says what to do, never to a traceback."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.ports import free_port

from ..cluster import ApiServer
from .ansible import Run, call, playbook, task
from .conftest import kubeconfig_for

NODE = {"name": "any"}
CONTENT = {"content": "", "sha256": ""}


def assert_plain(run: Run) -> None:
    """Check that there are failures, and that each has a message in words."""
    assert "Traceback" not in run.output and "MODULE FAILURE" not in run.output, run.output
    assert run.failures
    for result in run:
        assert "module_stderr" not in result and "module_stdout" not in result, result
    for message in run.failures:
        assert message.strip()


async def test_every_module_says_that_the_api_server_does_not_answer():
    server = f"https://127.0.0.1:{free_port()}"
    run = await call(
        kubeconfig_for(server),
        task("ccm_cluster_info"),
        task("ccm_node_info", wait_for="ready", wait_timeout=0),
        task("ccm_node_adopt", **NODE),
        task("ccm_health_info", wait=True, wait_timeout=0),
        task("ccm_kubeadm_config", **CONTENT),
    )
    assert_plain(run)
    assert len(run.failures) == 5
    for message in run.failures:
        assert f"{server} does not answer" in message
        assert "refused" in message
        assert "reachable from ccm_install_api_host" in message


async def test_a_kubeconfig_that_is_not_usable_is_named(apiserver: ApiServer, tmp_path: Path):
    missing, folder, binary = tmp_path / "missing", tmp_path / "folder", tmp_path / "binary"
    broken, empty = tmp_path / "broken", tmp_path / "empty"
    folder.mkdir()
    broken.write_text("clusters: [\n - {")
    binary.write_bytes(b"\x00\xff\xfe")
    empty.write_text("")
    no_certificate = kubeconfig_for(apiserver.url)
    no_certificate["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "ca.crt")
    good = str(apiserver.kubeconfig())
    expected = [
        ({"kubeconfig": str(missing)}, [str(missing), "No such file", "Set ccm_install_kubeconfig"]),
        ({"kubeconfig": str(folder)}, [str(folder), "Is a directory", "Set ccm_install_kubeconfig"]),
        ({"kubeconfig": str(broken)}, [str(broken), "not YAML"]),
        ({"kubeconfig": str(binary)}, [str(binary)]),
        ({"kubeconfig": str(empty)}, [str(empty), "not usable"]),
        ({"kubeconfig": good, "context": "nowhere"}, [good, "nowhere"]),
        ({"kubeconfig": {"a": 1}}, ["given as data", "not usable"]),
        ({"kubeconfig": no_certificate}, [str(tmp_path / "ca.crt")]),
    ]
    run = await call("", *(task("ccm_node_info", **arguments) for arguments, _ in expected))
    assert_plain(run)
    for (arguments, words), message in zip(expected, run.failures, strict=True):
        assert all(word in message for word in words), (arguments, message)


async def test_rights_and_trust_that_are_missing_are_named(apiserver: ApiServer):
    nobody = kubeconfig_for(apiserver.url, "no-such-token")
    nobody["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    distrusting = kubeconfig_for(apiserver.url, apiserver.token)
    powerless = str(apiserver.kubeconfig("powerless", ()))
    run = await call(
        powerless,
        task("ccm_node_info", wait_for="ready"),
        task("ccm_health_info", wait=True),
        task("ccm_cluster_info", kubeconfig=nobody),
        task("ccm_cluster_info", kubeconfig=distrusting),
    )
    assert_plain(run)
    *forbidden, unauthorised, untrusted = run.failures
    for message in forbidden:
        assert "(403)" in message and '"powerless"' in message and "needs this permission" in message
    assert "(401)" in unauthorised and "credentials are invalid or expired" in unauthorised
    assert "no-such-token" not in run.output
    assert "certificate verify failed" in untrusted
    assert "check that the kubeconfig has the CA of this cluster" in untrusted
    assert apiserver.token not in run.output


NOWHERE = "ansible_host=127.0.0.1 ansible_port=1"  # if the run is not refused, it connects to nothing
INVENTORIES = {
    "without": (f"[masters]\ncp-1\n[kube_node]\nworker-1 {NOWHERE}\n", "Groups found: kube_node, masters."),
    "empty": (
        f"[kube_control_plane]\n[kube_node]\nworker-1 {NOWHERE}\n",
        "Groups found: kube_control_plane, kube_node.",
    ),
    "nothing": ("", "Groups found: none."),
}


async def test_an_inventory_without_a_control_plane_is_refused(tmp_path: Path):
    cases = [("site", "without"), ("preflight", "empty"), ("verify", "nothing"), ("rollback", "without")]
    for name, (text, _) in INVENTORIES.items():
        (tmp_path / name).write_text(text)
    runs = await asyncio.gather(
        *(playbook(f"playbooks/{book}.yml", "-i", str(tmp_path / inventory)) for book, inventory in cases)
    )
    for (book, inventory), run in zip(cases, runs, strict=True):
        assert run.status != 0, (book, inventory, run.output)
        assert_plain(run)
        (message,) = run.failures
        assert run.results[-1]["msg"] == message  # nothing came after it
        assert "no host in the group kube_control_plane" in message
        assert "Put the control planes into the group kube_control_plane and the workers into kube_node" in message
        assert message.endswith(INVENTORIES[inventory][1]), (book, message)


LIMITS = {
    "localhost,kube_control_plane,w-9": "w-9",
    "localhost:kube_control_plane:worker-1:w-8:w-9": "w-8, w-9",
    "all:!w-9": "w-9",
}


async def test_a_limit_that_names_no_host_of_the_inventory_is_refused(tmp_path: Path):
    """Ansible itself only warns and runs on the other hosts, so a caller who mistypes a name would see a success."""
    (tmp_path / "hosts").write_text(f"[kube_control_plane]\ncp-1 {NOWHERE}\n[kube_node]\nworker-1 {NOWHERE}\n")
    books = ("verify", "site", "rollback")
    runs = await asyncio.gather(
        *(
            playbook(f"playbooks/{book}.yml", "-i", str(tmp_path / "hosts"), "--limit", limit)
            for book, limit in zip(books, LIMITS, strict=True)
        )
    )
    for run, name in zip(runs, LIMITS.values(), strict=True):
        assert run.status != 0, run.output
        assert_plain(run)
        assert run.failures and set(run.failures) == {
            f"Nothing was changed or checked: --limit names {name}, which is neither a host nor a group of the "
            "inventory. Correct the name, or add the host to the inventory."
        }
        assert run.results[-1]["msg"] == run.failures[-1]  # nothing came after it


async def test_a_kubeconfig_that_does_not_exist_stops_the_plan(tmp_path: Path):
    """The test runs the step without the detection before it, which would read this host's own processes."""
    missing = tmp_path / "admin.conf"
    step = {"name": "outoftree.ccm.ccm_install", "tasks_from": "plan/migration"}
    plan = {"name": "Plan", "ansible.builtin.import_role": step}
    play = {"hosts": "kube_control_plane", "gather_facts": False, "tasks": [plan]}
    (tmp_path / "hosts").write_text("[kube_control_plane]\ncp-1 ansible_connection=local\n")
    run = await playbook(
        "/dev/stdin",
        "--inventory",
        str(tmp_path / "hosts"),
        "--extra-vars",
        json.dumps({"ccm_install_kubeconfig": str(missing), "ansible_python_interpreter": sys.executable}),
        stdin=json.dumps([play]),
    )
    assert run.status != 0
    assert_plain(run)
    (message,) = run.failures
    assert f"cannot read the kubeconfig {missing}: No such file" in message and "ccm_install_api_host" in message
    assert run.results[-1]["msg"] == message  # nothing came after it
