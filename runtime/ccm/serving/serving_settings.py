# SPDX-License-Identifier: Apache-2.0
"""What to serve, where, and to whom. The module `ports` does the serving. It is separate because importing aiohttp's
server takes long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ccm.options.tls_options import TlsOptions

from .authorization import Lifetimes


class PortSettings(msgspec.Struct, frozen=True):
    """Where to serve. `port`: 0 for nowhere. `flag`: the prefix of the port's flags. `client_ca_file`: the CA of
    clients, "" for none."""

    flag: str
    address: str
    port: int
    tls: TlsOptions
    share: bool
    client_ca_file: str = ""

    @property
    def is_self_signed(self) -> bool:
        """Whether the port is served with a certificate that this process creates."""
        return bool(self.port) and not self.tls.certificate


class ClientSettings(msgspec.Struct, frozen=True):
    """How the clients of the secure port are authenticated, and what they may read.

    `authentication`, `authorization`: the kubeconfigs for questions to the API server about clients, "" for our own
    identity. `skip_lookup`: do not read the cluster's CA of clients; `tolerate_lookup_failure`: serve without it.
    `open_paths`: what anybody may read.
    """

    authentication: str
    authorization: str
    skip_lookup: bool
    tolerate_lookup_failure: bool
    lifetimes: Lifetimes
    open_paths: tuple[str, ...]


class ServingSettings(msgspec.Struct, frozen=True):
    """All settings of the servers. `names`: the webhooks to serve, as `--webhooks` names them. `configz` returns all
    options."""

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
