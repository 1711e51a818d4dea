# SPDX-License-Identifier: Apache-2.0
"""User and password from a mounted Secret, under the names that cloud-provider-vsphere reads."""

from __future__ import annotations

import pytest

from ccm.cloud import Unauthorized
from ccm.providers.vsphere.credentials import credentials
from ccm.providers.vsphere.settings import VCenter


def vcenter(tmp_path, files, server="10.0.0.1", **more):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return VCenter("one", server, secrets=str(tmp_path), **more)


def test_keys_of_a_server(tmp_path):
    (tmp_path / "..data").mkdir()
    files = {"10.0.0.1.username": b"ccm\n", "10.0.0.1.password": b" pass word \n", "10.0.0.2.username": b"other"}
    assert credentials(vcenter(tmp_path, files)) == ("ccm", " pass word ")


def test_the_form_for_addresses_with_colons(tmp_path):
    files = {"server_a": b"fd01::1\n", "username_a": b"ccm", "password_a": b"secret", "server_b": b"fd01::2"}
    assert credentials(vcenter(tmp_path, files, "fd01::1")) == ("ccm", "secret")


@pytest.mark.parametrize(
    "files", [{}, {"10.0.0.1.username": b"u"}, {"10.0.0.1.username": b"u", "10.0.0.1.password": b""}]
)
def test_what_is_missing_is_named(tmp_path, files):
    with pytest.raises(Unauthorized, match=r"has no 10\.0\.0\.1\.username and 10\.0\.0\.1\.password"):
        credentials(vcenter(tmp_path, files))
    assert credentials(vcenter(tmp_path, files, user="u", password="p")) == ("u", "p")


def test_no_folder_or_no_text(tmp_path):
    with pytest.raises(Unauthorized, match="cannot read the Secret"):
        credentials(VCenter("one", "v", secrets=str(tmp_path / "missing")))
    with pytest.raises(Unauthorized, match="not UTF-8"):
        credentials(vcenter(tmp_path, {"x": b"\xff"}))


def test_without_a_secret():
    assert credentials(VCenter("one", "v", user="u", password="p")) == ("u", "p")
