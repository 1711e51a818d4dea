# SPDX-License-Identifier: Apache-2.0
"""Reads user and password from the files of a mounted Secret that has cloud-provider-vsphere's keys. Blocking.

The keys are `SERVER.username` and `SERVER.password`. For addresses with colons there is a second form: `server_X`,
`username_X` and `password_X`, where X is any text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ccm.cloud import Unauthorized

from .settings import VCenter

#: The maximum size of a file of a Secret, in bytes: Kubernetes allows no more.
LARGEST = 1 << 20


def credentials(vcenter: VCenter) -> tuple[str, str]:
    """Return user and password. They come from the Secret, or from the configuration if there is no Secret, or if it
    has no keys for this server. Raises Unauthorized with the folder and what is missing in it."""
    if not vcenter.secrets:
        return vcenter.user, vcenter.password
    try:
        files = {each.name: _content(each) for each in Path(vcenter.secrets).iterdir() if each.is_file()}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "a file is not UTF-8 text"
        raise Unauthorized(f"vCenter {vcenter.server}: cannot read the Secret in {vcenter.secrets}: {reason}") from None
    pair = of_server(files, vcenter.server)
    if pair is None and vcenter.user and vcenter.password:
        return vcenter.user, vcenter.password
    if pair is None:
        keys = f"{vcenter.server}.username and {vcenter.server}.password"
        raise Unauthorized(f"vCenter {vcenter.server}: the Secret in {vcenter.secrets} has no {keys}")
    return pair


def of_server(files: Mapping[str, str], server: str) -> tuple[str, str] | None:
    """Return user and password of a server in a Secret, None if one of them is missing or empty."""
    pair = files.get(f"{server}.username", ""), files.get(f"{server}.password", "")
    for key, value in files.items():
        if key.startswith("server_") and value.strip() == server:
            suffix = key.removeprefix("server_")
            pair = files.get(f"username_{suffix}", ""), files.get(f"password_{suffix}", "")
    user, password = (each.removesuffix("\n") for each in pair)
    return (user, password) if user and password else None


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(LARGEST).decode()
