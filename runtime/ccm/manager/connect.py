# SPDX-License-Identifier: Apache-2.0
"""The first stage of a process: it waits for the API server, and checks that the controllers have the rights they
need."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import msgspec

from ccm import __version__
from ccm.base.start_error import StartError
from ccm.controllers.controller_spec import Right
from ccm.engine.client import ApiError, KubeClient, KubeConfigError, UnavailableError
from ccm.engine.objects import PartialObject

from . import rights_check

log = logging.getLogger(__name__)


class ApiServerSettings(msgspec.Struct, frozen=True):
    """How to use the API server. `qps`: our requests per second, 0 for no limit; `burst`: how many at once. `patience`:
    seconds to wait for the first answer.

    `protobuf`: whether to ask for objects in protobuf, if their type has that encoding.
    """

    kubeconfig: str = ""
    master: str = ""
    qps: float = 0.0
    burst: int = 0
    patience: float = 0.0
    protobuf: bool = True


async def connect(settings: ApiServerSettings, rights: list[Right], cleanup: contextlib.AsyncExitStack) -> KubeClient:
    """Return a client whose API server answers and allows `rights`. Raises StartError if it does not, or does not
    answer in time."""
    client = create_client(settings)
    cleanup.push_async_callback(client.close)
    await wait_for_api_server(client, settings.patience)
    await check_permissions(client, rights)
    return client


def create_client(settings: ApiServerSettings, *, kubeconfig: str = "") -> KubeClient:
    """Return a client for the API server, with another identity if `kubeconfig` is set. Raises StartError if the access
    to it is misconfigured."""
    try:
        client = KubeClient.from_config(
            kubeconfig=kubeconfig or settings.kubeconfig,
            master="" if kubeconfig else settings.master,
            user_agent=f"outoftree-ccm/{__version__}",
        )
    except KubeConfigError as error:
        raise StartError(str(error)) from None
    client.protobuf = settings.protobuf
    client.set_rate_limit(settings.qps, settings.burst)
    return client


async def wait_for_api_server(client: KubeClient, patience: float) -> None:
    """Wait until the API server answers with anything but a server error. Raises StartError after `patience` seconds,
    and if the API server rejects our credentials."""
    deadline = time.monotonic() + patience
    reported = False
    while True:
        try:
            await client.get("/version", PartialObject, timeout=5.0)
            return
        except UnavailableError as error:
            if time.monotonic() > deadline:
                raise StartError(
                    f"the API server {client.server} did not answer within {patience:g} s: {error}. "
                    "Check --kubeconfig or --master, the network, and that kube-apiserver runs"
                ) from None
            if not reported:
                log.warning(
                    "the API server %s does not answer, waiting up to %.0f s: %s", client.server, patience, error
                )
                reported = True
            await asyncio.sleep(1.0)
        except ApiError as error:
            if error.status == 401:
                raise StartError(f"the API server {client.server} rejects our credentials: {error}") from None
            return


async def check_permissions(client: KubeClient, rights: list[Right]) -> None:
    """Raises StartError that names every missing permission. Only warns if permissions are not reported."""
    try:
        missing = await rights_check.missing(client, rights)
    except ApiError as error:
        log.warning("the API server does not report our permissions, continuing without a check: %s", error)
        return
    if missing:
        raise StartError(
            "the API server does not allow this identity to: "
            + "; ".join(str(right) for right in missing)
            + ". Grant it in the ClusterRole (or the Role in the namespace) that is bound to the ServiceAccount"
            + _HINT * any(right.resource == "configmaps" for right in missing)
        )


_HINT = (
    "; for the ConfigMap bind the Role extension-apiserver-authentication-reader in kube-system, or set "
    "--authentication-skip-lookup or --authentication-tolerate-lookup-failure"
)
