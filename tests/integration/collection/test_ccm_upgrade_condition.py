# SPDX-License-Identifier: Apache-2.0
"""The lasting signal of lint.yml: a condition of a namespace on a real API server, as kubectl shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from ccm.engine.client import KubeClient
from tools.docs.commands import command

from ..cluster import ApiServer
from ..shell import shell
from .ansible import REPOSITORY, call, task
from .conftest import Interloper, kubeconfig_for
from .test_layouts import HOSTS, Cluster, cluster
from .test_pages import inventory

__all__ = ["cluster"]

PAGE = "docs/how-to/lint.md"
NAMESPACE = "/api/v1/namespaces/kube-system"
TYPE = "UpgradeableToNextMinor"
YES = {"status": "True", "reason": "NothingFound", "text": "1.36 to 1.37: no component stops"}
NO = {"status": "False", "reason": "Blocked", "text": "1.36 to 1.37: a flag"}
#: A condition of Kubernetes itself. Unlike ours, it reports a problem if its status is True.
THEIRS = {"type": "NamespaceDeletionContentFailure", "status": "False", "reason": "Theirs", "message": "stays"}


def conditions(apiserver: ApiServer) -> list[dict[str, Any]]:
    found = json.loads(apiserver.kubectl("get", "namespace", "kube-system", "-o", "json"))
    return [{key: value for key, value in each.items() if value} for each in found["status"].get("conditions", [])]


def ours(apiserver: ApiServer) -> dict[str, Any]:
    (condition,) = (each for each in conditions(apiserver) if each["type"] == TYPE)
    return condition


def written(words: dict[str, str], *, check: bool = False) -> dict[str, Any]:
    return task("ccm_upgrade_condition", check=check, diff=True, condition=words)


def patch(apiserver: ApiServer, body: dict[str, Any]) -> None:
    apiserver.kubectl("patch", "namespace", "kube-system", "--subresource=status", "-p", json.dumps(body))


@pytest.fixture(autouse=True)
def theirs(apiserver: ApiServer) -> Iterator[None]:
    patch(apiserver, {"status": {"conditions": [THEIRS]}})
    yield
    gone = [{"type": name, "$patch": "delete"} for name in (TYPE, THEIRS["type"])]
    patch(apiserver, {"status": {"conditions": gone}})
    assert conditions(apiserver) == []


async def test_one_condition_is_written_beside_those_of_others(apiserver: ApiServer, kubeconfig: str) -> None:
    foretold, first, again, other, wrong = await call(
        kubeconfig,
        written(NO, check=True),
        written(NO),
        written(NO),
        written(NO | {"text": "b"}),
        written(NO | {"status": "no"}),
    )
    assert foretold["changed"] and foretold["diff"]["before"] == "" and foretold["condition"]["status"] == "False"
    assert foretold["diff"]["after"] == "False Blocked: 1.36 to 1.37: a flag\n"
    assert first["changed"] and not again["changed"] and other["changed"]
    assert first["condition"]["lastTransitionTime"] == other["condition"]["lastTransitionTime"]
    assert re.fullmatch(r"b \(checked 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\)", ours(apiserver)["message"])
    assert [each["type"] for each in conditions(apiserver)] == [THEIRS["type"], TYPE]
    assert wrong["failed"] and "True, False, Unknown" in wrong["msg"]


async def test_check_mode_writes_nothing_and_another_status_has_its_own_time(
    apiserver: ApiServer, kubeconfig: str
) -> None:
    await call(kubeconfig, written(NO, check=True))
    assert conditions(apiserver) == [THEIRS]
    words = {"status": NO["status"], "reason": NO["reason"], "message": NO["text"]}
    long_ago = {"type": TYPE, "lastTransitionTime": "2020-01-01T00:00:00Z", **words}
    patch(apiserver, {"status": {"conditions": [long_ago]}})
    same, changed = await call(kubeconfig, written(NO), written(YES))
    assert not same["changed"] and same["condition"]["lastTransitionTime"] == "2020-01-01T00:00:00Z"
    assert changed["changed"] and changed["condition"]["lastTransitionTime"] > "2020-01-01T00:00:00Z"
    assert changed["diff"]["before"].startswith("False Blocked: ")
    assert changed["diff"]["after"].startswith("True NothingFound: ")
    await shell(command(PAGE, "kubectl wait"), apiserver.folder, apiserver)


async def test_what_somebody_else_writes_meanwhile_stays(
    kube: KubeClient, apiserver: ApiServer, interloper: Interloper
) -> None:
    status = f"{NAMESPACE}/status"
    change = {"metadata": {"annotations": {"of": "others"}}}
    interloper.strikes[status] = partial(kube.patch, NAMESPACE, change)
    (result,) = await call(interloper.kubeconfig, written(YES))
    assert result["changed"] and interloper.statuses[status] == [409, 200]
    assert ours(apiserver)["status"] == "True"
    assert apiserver.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.annotations.of}") == "others"


async def test_a_user_who_may_not_write_it_is_told_so(apiserver: ApiServer) -> None:
    kubeconfig = yaml.safe_load(apiserver.kubeconfig().read_text())
    server = kubeconfig["clusters"][0]["cluster"]
    apiserver.kubectl("create", "serviceaccount", "reader")
    try:
        token = apiserver.kubectl("create", "token", "reader").strip()
        stranger = kubeconfig_for(server["server"], token)
        stranger["clusters"][0]["cluster"] = server
        (refused,) = await call(stranger, written(YES))
    finally:
        apiserver.kubectl("delete", "serviceaccount", "reader")
    assert refused["failed"] and f"cannot write the condition {TYPE} of the namespace kube-system" in refused["msg"]
    assert "needs this permission" in refused["msg"] and conditions(apiserver) == [THEIRS]


async def test_the_commands_of_the_page_say_what_stops_the_next_minor(cluster: Cluster, apiserver: ApiServer) -> None:
    cluster.add("systemd-cp", HOSTS["systemd-cp"])
    (cluster.folder / "inventory.yml").write_text(inventory(cluster, apiserver))
    settings = f"export ANSIBLE_CONFIG={REPOSITORY / 'ansible.cfg'}\n"
    beginning = "ansible-playbook -i inventory.yml outoftree.ccm.lint -e ccm_install_lint_condition"
    lint = settings + command(PAGE, beginning)
    foretold = await shell(f"{lint} --check --diff", cluster.folder, seconds=300)
    assert "False Blocked" in foretold and conditions(apiserver) == [THEIRS]
    await shell(lint, cluster.folder, seconds=300)
    shown = await shell(command(PAGE, "kubectl get"), cluster.folder, apiserver)
    assert "systemd-cp:" in shown and "kube-controller-manager of 1.31 does not start with" in shown
    assert "; and 2 more: outoftree.ccm.lint lists them (checked 20" in shown
    assert ours(apiserver)["status"] == "False" and ours(apiserver)["reason"] == "Blocked"
    with pytest.raises(AssertionError, match="timed out waiting for the condition"):
        await shell(command(PAGE, "kubectl wait"), cluster.folder, apiserver)
    await shell(command(PAGE, "kubectl patch"), cluster.folder, apiserver)
    assert conditions(apiserver) == [THEIRS]
