# SPDX-License-Identifier: Apache-2.0
"""Reads a page of a Pod's process with the caller's own credentials, through a port that the API server forwards.

The API server's Pod proxy would be simpler, but it strips the caller's credentials, so the process would not know who
asks.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Sequence

from ccm.base.text import shorten
from ccm.controllers.controller_spec import Right
from ccm.engine.api_credentials import Access
from ccm.engine.api_errors import ApiError, ForbiddenError, UnavailableError
from ccm.engine.client import KubeClient
from ccm.engine.port_forward import port_forward
from ccm.manager import rights_check

#: The host name that must be in the process's certificate, because the kubelet connects to the Pod's loopback address.
HOST = "localhost"
#: How many characters of an answer, such as a refusal, an error quotes.
QUOTED = 500


async def read(
    client: KubeClient, process: Access, namespace: str, pod: str, port: int, path: str, wait: float
) -> bytes:
    """Return the answer to GET `path`. `process`: the credentials for the process in the Pod; `wait`: seconds. Raises
    ApiError."""
    where = f"{path} of port {port} of the Pod {namespace}/{pod}"
    try:
        async with asyncio.timeout(wait):
            headers, context = await process.headers(), await process.tls()
            assert isinstance(context, ssl.SSLContext)
            async with port_forward(client.access, namespace, pod, port) as tunnel:
                try:
                    code, body = await asyncio.to_thread(_get, tunnel.socket, context, path, headers, wait)
                except (OSError, http.client.HTTPException) as error:
                    raise UnavailableError(0, type(error).__name__, _unreachable(port, tunnel.problem, error)) from None
    except TimeoutError:
        raise UnavailableError(0, "Timeout", f"{where}: no answer within {wait:g} s") from None
    except ForbiddenError as error:
        raise await _missing(client, namespace, error) from None
    if code != 200:
        text = shorten(body.decode("utf-8", "replace").strip(), QUOTED)
        raise ApiError(code, "Refused", f"{where}: the process answers {code}: {text}")
    return body


def _get(
    end: socket.socket, context: ssl.SSLContext, path: str, headers: Sequence[tuple[str, str]], wait: float
) -> tuple[int, bytes]:
    """Return status and body. Runs in a thread, which ends with the tunnel. Raises OSError and HTTPException."""
    end.settimeout(wait)
    connection = http.client.HTTPConnection(HOST)
    with end, context.wrap_socket(end, server_hostname=HOST) as connection.sock:
        connection.request("GET", path, headers={"Connection": "close", **dict(headers)})
        answer = connection.getresponse()
        return answer.status, answer.read()


def _unreachable(port: int, problem: str, error: Exception) -> str:
    if problem:
        return (
            f"the kubelet cannot connect to port {port} on the Pod's loopback address, so the process serves another "
            f"port or address (--secure-port, --bind-address), or has ended: {problem}"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate on port {port} of the Pod is not valid for {HOST} by --url-ca-file: {error}"
    if isinstance(error, ssl.SSLError):
        return (
            f"port {port} of the Pod does not answer with TLS, so it is not the controller's (--secure-port): {error}"
        )
    return f"the connection to port {port} of the Pod was closed early: {error or type(error).__name__}"


async def _missing(client: KubeClient, namespace: str, error: ForbiddenError) -> ApiError:
    """Return the error, with the names of the missing rights if they are known.

    A WebSocket needs `get`, and from Kubernetes 1.35 on `create`, too: kubernetes/kubernetes issue 133515.
    """
    rights = [Right("pods/portforward", verb, namespace=namespace) for verb in ("get", "create")]
    try:
        missing = await rights_check.missing(client, rights)
    except ApiError:
        return error
    if not missing:
        return error
    return ForbiddenError(403, "Forbidden", f"grant {' and '.join(map(str, missing))}")
