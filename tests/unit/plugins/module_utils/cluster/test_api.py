# SPDX-License-Identifier: Apache-2.0
"""How the modules prepare a kubeconfig for the library, read lists, and explain refused certificates."""

from __future__ import annotations

import base64
import copy
import os
import pathlib
import ssl
import tempfile
from typing import Any

import pytest
import urllib3
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api

KEY = "-----BEGIN PRIVATE KEY-----\nnobody's\n"
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="there are no files in memory here")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def admin_conf() -> dict[str, Any]:
    """Return an admin.conf as kubeadm writes it."""
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "admin",
        "contexts": [{"name": "admin", "context": {"cluster": "kubernetes", "user": "admin"}}],
        "clusters": [{"name": "kubernetes", "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority-data": encoded("ca")}}],
        "users": [{"name": "admin", "user": {"client-certificate-data": encoded("certificate"), "client-key-data": encoded(KEY)}}],
    }


def test_keys_are_in_files_that_no_disk_has() -> None:
    given = admin_conf()
    changed = api.in_memory(given)
    assert given == admin_conf()
    user, cluster = changed["users"][0]["user"], changed["clusters"][0]["cluster"]
    assert set(user) == {"client-certificate", "client-key"} and set(cluster) == {"server", "certificate-authority"}
    assert pathlib.Path(user["client-key"]).read_text() == KEY
    assert pathlib.Path(cluster["certificate-authority"]).read_text() == "ca"
    assert all("memfd:" in os.readlink(path) for path in user.values())


def test_the_library_needs_no_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = pytest.importorskip("kubernetes")

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a temporary file")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config_from_dict(api.in_memory(admin_conf()), client_configuration=configuration, persist_config=False)
    assert pathlib.Path(configuration.key_file).read_text() == KEY
    assert pathlib.Path(configuration.cert_file).read_text() == "certificate"
    assert pathlib.Path(configuration.ssl_ca_cert).read_text() == "ca"


@pytest.mark.parametrize("broken", [{}, {"users": None}, {"users": [{"name": "x"}]}, {"users": [{"user": None}], "clusters": []}], ids=str)
def test_a_kubeconfig_that_lacks_parts_stays_as_it_is(broken: dict[str, Any]) -> None:
    assert api.in_memory(copy.deepcopy(broken)) == broken


def test_a_key_that_is_not_base64_is_a_value_error() -> None:
    conf = admin_conf()
    conf["users"][0]["user"]["client-key-data"] = "abc"
    with pytest.raises(ValueError, match="padding|base64"):
        api.in_memory(conf)


class Paged(api.Api):
    """An API whose lists have two pages. The list of an unknown kind does not exist."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []

    def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any] | None:
        self.asked.append((path, dict(query or {})))
        if path != "/pods":
            return None
        return {"items": [3]} if "continue" in (query or {}) else {"items": [1, 2], "metadata": {"continue": "next"}}


def test_a_list_is_read_page_by_page() -> None:
    paged = Paged()
    pages = paged.pages("/pods", {"fieldSelector": "x"})
    assert next(pages) == [1, 2] and len(paged.asked) == 1, "the second page is read when it is wanted"
    assert list(pages) == [[3]]
    first = {"fieldSelector": "x", "limit": "500"}
    assert paged.asked == [("/pods", first), ("/pods", {**first, "continue": "next"})]
    assert Paged().items("/pods") == [1, 2, 3] and Paged().items("/unknown") == []


class Module:
    """A module whose kubeconfig, passed as data, has no cluster: connecting fails, and the library's reason quotes the data."""

    def __init__(self, kubeconfig: dict[str, Any]) -> None:
        self.params = {"kubeconfig": kubeconfig, "context": None}
        self.no_log_values: set[str] = set()

    def fail_json(self, **result: Any) -> None:
        raise SystemExit(result["msg"])


@pytest.mark.parametrize("new", [False, True], ids=["no_log_values", "register_secrets of 2.22"])
def test_credentials_of_a_kubeconfig_are_masked_by_every_core(monkeypatch: pytest.MonkeyPatch, new: bool) -> None:
    pytest.importorskip("kubernetes")
    registered: list[str] = []
    monkeypatch.setattr(api, "register_secrets", registered.extend if new else None)
    given = admin_conf()
    given["users"][0]["user"]["token"] = "s3cr3t"
    module = Module(given)
    api.connect(module)
    secrets = {"s3cr3t", encoded(KEY)}
    assert secrets <= set(registered if new else module.no_log_values)
    assert not (module.no_log_values if new else registered)


#: OpenSSL's codes and messages. Python 3.13 and newer refuse the first four, in strict mode; every Python refuses
#: the last two.
REFUSALS = {
    85: "Missing Authority Key Identifier",
    86: "Missing Subject Key Identifier",
    89: "Basic Constraints of CA cert not marked critical",
    92: "CA cert does not include key usage extension",
    20: "unable to get local issuer certificate",
    79: "invalid CA certificate",
}


@pytest.mark.parametrize(("code", "reason"), REFUSALS.items())
def test_what_only_newer_pythons_refuse_is_not_called_a_wrong_authority(code: int, reason: str) -> None:
    refusal = ssl.SSLCertVerificationError(1, "certificate verify failed: " + reason)
    refusal.verify_code = code
    error = api.ApiError(0, "https://127.0.0.1:6443 does not answer: " + reason)
    error.__cause__ = urllib3.exceptions.SSLError(refusal)
    text = api.explain(error)
    assert text.startswith(str(error)) and ("Python 3.13" in text) == (code > 79)
    assert ("check that the kubeconfig has the CA of this cluster" in text) != ("ansible_python_interpreter" in text)
