# SPDX-License-Identifier: Apache-2.0
"""What to serve, where, and to whom. `ports` serves it, and imports aiohttp's server, which takes longer than this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ccm.options.tls_options import TlsOptions

from .authorization import Lifetimes


@dataclass(frozen=True)
class PortSettings:
    """Where to serve, 0 for nowhere. `flag`: what its flags begin with. `client_ca_file`: of clients, "" for none."""

    flag: str
    address: str
    port: int
    tls: TlsOptions
    share: bool
    client_ca_file: str = ""


@dataclass(frozen=True)
class ClientSettings:
    """How the clients of the secure port are known, and what they may read.

    `authentication`, `authorization`: the kubeconfigs of those who ask the API server about clients, "" for our own
    identity. `skip_lookup`: do not read the cluster's CA of clients; `tolerate_lookup_failure`: serve without it.
    `open_paths`: what anybody may read.
    """

    authentication: str
    authorization: str
    skip_lookup: bool
    tolerate_lookup_failure: bool
    lifetimes: Lifetimes
    open_paths: tuple[str, ...]


@dataclass(frozen=True)
class ServingSettings:
    """`names`: the webhooks to serve, as `--webhooks` names them. `configz` returns all options."""

    secure: PortSettings
    clients: ClientSettings
    webhooks: PortSettings
    names: tuple[str, ...]
    configz: Callable[[], dict[str, Any]]

    @property
    def needs_client_ca(self) -> bool:
        """Whether our own identity must be allowed to read the cluster's CA of clients."""
        clients = self.clients
        lookup = not clients.skip_lookup and not clients.tolerate_lookup_failure
        return bool(self.secure.port) and lookup and not clients.authentication
