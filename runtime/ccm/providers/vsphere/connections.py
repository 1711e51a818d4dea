# SPDX-License-Identifier: Apache-2.0
"""Connections to one vCenter over HTTPS: one kind for SOAP, one for the REST API of tags. Blocking."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import ssl
import time
from typing import Any

from ccm.cloud import RateLimited, Transient, Unauthorized
from ccm.cloud.toolkit.retry_after import retry_after
from ccm.cloud.toolkit.untrusted_text import printable, shorten

from .settings import VCenter

#: The maximum size of an answer of the REST API, in bytes.
LARGEST = 64 << 20
_SESSION = "/com/vmware/cis/session"


def tls_context(vcenter: VCenter) -> ssl.SSLContext:
    """Return the TLS settings of a vCenter. With a thumbprint, `Connection` verifies the certificate instead. Raises
    OSError if the file with authorities cannot be read."""
    context = ssl.create_default_context(cafile=vcenter.ca_file or None)
    if vcenter.insecure or vcenter.thumbprint:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Connection(http.client.HTTPSConnection):
    """An HTTPS connection that accepts only the certificate with `thumbprint`, if that is set."""

    thumbprint = ""

    def connect(self) -> None:
        super().connect()
        if self.thumbprint:
            certificate = self.sock.getpeercert(binary_form=True) or b""
            digest = hashlib.sha1 if len(self.thumbprint) == 40 else hashlib.sha256
            if digest(certificate).hexdigest() != self.thumbprint:
                self.close()
                raise Transient(f"vCenter {self.host}: its certificate does not match thumbprint")


class SoapConnection(Connection):
    """A connection for SOAP. For an answer that is not SOAP it raises an error, which has the answer's `Retry-After`,
    because pyvmomi would drop that header."""

    def getresponse(self) -> http.client.HTTPResponse:
        response = super().getresponse()
        if response.status not in (200, 500):
            self.close()
            raise_for_status(self.host, "SOAP", response.status, response.headers, b"")
        return response


def raise_for_status(server: str, call: str, status: int, headers: Any, content: bytes) -> None:
    """Raise the error for an answer with an error status: RateLimited for status 429, Unauthorized for 401 and 403,
    otherwise Transient. `call`: the call, for the message."""
    wait = retry_after(headers, content, time.time())
    text = f"vCenter {server}: {shorten(printable(call), 200)}: HTTP status {status}"
    if status == 429:
        raise RateLimited(text, retry_after=wait)
    if status in (401, 403):
        raise Unauthorized(f"{text}: check the user and the rights")
    raise Transient(text, retry_after=wait)


class RestSession:
    """A session with the REST API. It logs in at the first call, and again when the session has ended."""

    def __init__(self, vcenter: VCenter, login: tuple[str, str], context: ssl.SSLContext, timeout: float) -> None:
        self._vcenter, self._context, self._timeout = vcenter, context, timeout
        self._basic = base64.b64encode(":".join(login).encode()).decode()
        self._session = ""

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make a call and return the `value` of the answer. Raises CloudError, OSError, HTTPException, ValueError."""
        if not self._session:
            self._login()
        status, headers, content = self._send(method, path, body, {"vmware-api-session-id": self._session})
        if status == 401:
            self._login()
            status, headers, content = self._send(method, path, body, {"vmware-api-session-id": self._session})
        if status != 200:
            raise_for_status(self._vcenter.server, f"{method} /rest{path}", status, headers, content)
        answer = json.loads(content)
        if not isinstance(answer, dict) or "value" not in answer:
            raise ValueError("the answer has no value")
        return answer["value"]

    def logout(self) -> None:
        if self._session:
            self._send("DELETE", _SESSION, None, {"vmware-api-session-id": self._session})
            self._session = ""

    def _login(self) -> None:
        headers = {"Authorization": f"Basic {self._basic}"}
        status, received, content = self._send("POST", _SESSION, None, headers)
        if status != 200:
            raise_for_status(self._vcenter.server, f"POST /rest{_SESSION}", status, received, content)
        self._session = str(json.loads(content)["value"])

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        connection = Connection(self._vcenter.server, self._vcenter.port, context=self._context, timeout=self._timeout)
        connection.thumbprint = self._vcenter.thumbprint
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, f"/rest{path}", data, {**headers, "Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read(LARGEST)
            if not response.isclosed() and response.read(1):
                raise Transient(f"vCenter {self._vcenter.server}: an answer has more than {LARGEST} bytes")
            return response.status, response.headers, content
        finally:
            connection.close()
