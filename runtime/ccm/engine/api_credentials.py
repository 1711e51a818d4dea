# SPDX-License-Identifier: Apache-2.0
"""Authentication to an API server: tokens, certificates, and credential plugins.

Credentials that may rotate at run time (token files, certificates, exec credentials) are checked before each request; a
file costs a `stat`. Secrets never appear in log lines or representations. On Linux they stay in memory; elsewhere, a
client certificate and its key are in a temporary file while OpenSSL loads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccm.base.clock import SYSTEM_CLOCK, Clock

from .api_errors import UnavailableError
from .endpoints import Proxy
from .objects import parse_time

logger = logging.getLogger(__name__)

#: `FileText` reads its file again if its stat has changed or the last read is this old, in seconds (client-go: 60 s).
REREAD = 60.0
#: The timeout of an exec plugin, in seconds.
EXEC_TIMEOUT = 60.0


class FileText:
    """The text of a file that others replace, for example a projected ServiceAccount token."""

    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = path
        self._clock = clock
        self._text = ""
        self._seen: tuple[int, int, int] | None = None
        self._read_at = 0.0
        self._warned_of = ""

    def get(self) -> str:
        """Return the current text, stripped. While the file is missing, unreadable, or empty because it is being
        written in place, return the previous text and warn once. Without a previous text, an empty file gives "", and a
        missing or unreadable one raises OSError or UnicodeDecodeError."""
        try:
            seen = fingerprint(self.path)
            if seen != self._seen or self._clock.monotonic() - self._read_at >= REREAD:
                text = self.path.read_text().strip()
                self._warn_of("" if text else "it is empty")
                self._text = text or self._text
                self._seen, self._read_at = seen, self._clock.monotonic()
        except (OSError, UnicodeDecodeError) as error:
            if not self._text:
                raise
            self._warn_of(getattr(error, "strerror", None) or "it is not text")
        return self._text

    def _warn_of(self, problem: str) -> None:
        """Report once why the previous text is used. `problem`: what is wrong with the new text, "" for nothing."""
        if problem and self._text and problem != self._warned_of:
            logger.warning("cannot use the new content of %s, keeping the previous one: %s", self.path, problem)
        self._warned_of = problem

    def invalidate(self) -> None:
        self._seen = None


def fingerprint(path: Path) -> tuple[int, int, int]:
    """Return what changes when the file is written or replaced. Raises OSError."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


@dataclass(frozen=True)
class Pem:
    """A PEM, given as data or as a file that may rotate."""

    data: bytes = field(default=b"", repr=False)
    file: Path | None = None

    def read(self) -> bytes:
        return self.data if self.file is None else self.file.read_bytes()


@dataclass
class ExecPlugin:
    """A credential plugin (client.authentication.k8s.io v1 or v1beta1). It runs again when its last answer has expired,
    or when the API server has answered 401."""

    command: str
    args: list[str] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    api_version: str
    install_hint: str = ""
    #: May contain credentials of a proxy.
    cluster: dict[str, Any] | None = field(default=None, repr=False)
    clock: Clock = SYSTEM_CLOCK
    _status: dict[str, Any] = field(default_factory=dict, repr=False)
    _expires: datetime.datetime | None = None
    _running: asyncio.Task[None] | None = field(default=None, repr=False)

    async def credentials(self) -> dict[str, Any]:
        """Return `status` of the ExecCredential: token, clientCertificateData, clientKeyData. Raises UnavailableError.

        One run serves all requests. The run continues when a request gives up, because many plugins take longer
        than the time limit of a Lease's renewal.
        """
        if not self._status or (self._expires is not None and self.clock.now() >= self._expires):
            if self._running is None:
                self._running = asyncio.create_task(self._renew(), name=f"credential plugin {self.command}")
                self._running.add_done_callback(self._ended)
            await asyncio.shield(self._running)
        return self._status

    async def _renew(self) -> None:
        status = await self._run()
        stamp = status.get("expirationTimestamp")
        self._status, self._expires = status, parse_time(stamp) if stamp else None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # those that wait raise it; if nobody waits, asyncio must not report it

    def invalidate(self) -> None:
        self._status = {}

    async def _run(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})
        try:
            process = await asyncio.create_subprocess_exec(
                self.command,
                *self.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": info},
            )
        except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
            hint = f". {self.install_hint}" if self.install_hint else ""
            raise self._failed(f"cannot be started: {getattr(error, 'strerror', None) or error}{hint}") from None
        try:
            async with asyncio.timeout(EXEC_TIMEOUT):
                out, err = await process.communicate()
        except TimeoutError:
            raise self._failed(f"did not finish within {EXEC_TIMEOUT:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = err.decode("utf-8", "replace").strip().splitlines()
            raise self._failed(f"exited with {process.returncode}: {lines[-1][:300] if lines else '(no message)'}")
        return self.parse(out)

    def parse(self, out: bytes) -> dict[str, Any]:
        """Return the `status` of the plugin's output. Raises UnavailableError."""
        try:
            answer = json.loads(out)
            status: dict[str, Any] = answer["status"]
            if answer["apiVersion"] != self.api_version or not (
                status.get("token") or (status.get("clientCertificateData") and status.get("clientKeyData"))
            ):
                raise ValueError
            for name in ("token", "clientCertificateData", "clientKeyData"):
                if not isinstance(status.get(name) or "", str):
                    raise ValueError
            if not is_header(status.get("token") or ""):
                raise ValueError
            if status.get("expirationTimestamp") and parse_time(status["expirationTimestamp"]).tzinfo is None:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._failed(
                f"did not print an ExecCredential of {self.api_version} with a token or a client certificate"
            ) from None
        return status

    def _failed(self, what: str) -> UnavailableError:
        return UnavailableError(0, "ExecPlugin", f"credential plugin {self.command!r} of the kubeconfig {what}")


@dataclass
class Access:
    """Everything that a request to one API server needs. `ccm.engine.kubeconfig` creates it from a file or a Pod."""

    server: str
    ca: Pem | None = None
    insecure: bool = False
    server_name: str | None = None
    proxy: Proxy | None = None
    cert: Pem | None = None
    key: Pem | None = None
    token: str = field(default="", repr=False)
    token_file: FileText | None = None
    exec: ExecPlugin | None = None
    impersonate: list[tuple[str, str]] = field(default_factory=list)
    _ssl: ssl.SSLContext | None = None
    _ssl_seen: object = field(default=None, repr=False)

    async def headers(self) -> list[tuple[str, str]]:
        """Return authorization and impersonation headers. Raises UnavailableError if the token file cannot be read or
        has no token, or if the plugin fails."""
        token = self.token
        if self.token_file is not None:
            try:
                token = self.token_file.get()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise UnavailableError(0, "TokenFile", f"token file {self.token_file.path}: {reason}") from None
            if not token or not is_header(token):
                raise UnavailableError(0, "TokenFile", f"token file {self.token_file.path}: it contains no token")
        elif self.exec is not None:
            token = str((await self.exec.credentials()).get("token") or "")
        return ([("Authorization", f"Bearer {token}")] if token else []) + self.impersonate

    async def request_arguments(self, headers: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Return the arguments of aiohttp for one request: these headers and the credentials, TLS, and the proxy.

        Raises UnavailableError if a credential cannot be obtained.
        """
        every, proxy, proxy_headers = [*headers, *await self.headers()], self.proxy, None
        if proxy and proxy.authorization:
            if self.server.startswith("https:"):  # for CONNECT; without TLS the proxy reads the request's own headers
                proxy_headers = {"Proxy-Authorization": proxy.authorization}
            else:
                every.append(("Proxy-Authorization", proxy.authorization))
        return {
            "headers": every,
            "ssl": await self.tls(),
            "server_hostname": self.server_name,
            "proxy": proxy.url if proxy else None,
            "proxy_headers": proxy_headers,
        }

    def invalidate(self) -> None:
        """Discard cached credentials after the server answered 401."""
        if self.token_file is not None:
            self.token_file.invalidate()
        if self.exec is not None:
            self.exec.invalidate()

    @property
    def renewable(self) -> bool:
        """Whether a retry after a 401 can succeed."""
        return self.token_file is not None or self.exec is not None

    async def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS context for a request: a new one after certificates change, the old one until they can be
        loaded.

        True (aiohttp: default verification) for plain HTTP. Raises UnavailableError if there was never a working one,
        and if the plugin fails.
        """
        if not self.server.startswith("https:"):
            return True
        pair = await self._pair()
        try:
            files = [pem.file for pem in (self.ca, *pair) if pem is not None and pem.file is not None]
            seen = ([fingerprint(path) for path in files], [pem.data for pem in pair if pem is not None])
            if self._ssl is None or seen != self._ssl_seen:
                self._ssl, self._ssl_seen = self._context(*pair), seen
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if self._ssl is None:
                raise UnavailableError(0, "Certificates", f"TLS files for {self.server}: {error}") from None
            logger.warning("cannot load the new TLS certificates for %s, keeping the old ones: %s", self.server, error)
        return self._ssl

    async def _pair(self) -> tuple[Pem | None, Pem | None]:
        if self.exec is None:
            return self.cert, self.key
        status = await self.exec.credentials()
        if not status.get("clientCertificateData"):
            return self.cert, self.key
        return (
            Pem(str(status["clientCertificateData"]).encode()),
            Pem(str(status["clientKeyData"]).encode()),
        )

    def try_certificates(self) -> None:
        """Load the certificates, to check that this works. Raises OSError or ValueError if it does not."""
        if self.server.startswith("https:"):
            self._context(self.cert, self.key)

    def _context(self, cert: Pem | None, key: Pem | None) -> ssl.SSLContext:
        cadata = self.ca.read().decode("ascii") if self.ca is not None else None
        context = ssl.create_default_context(cadata=cadata)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if hasattr(ssl, "VERIFY_X509_STRICT"):  # cluster CAs do not always follow RFC 5280 strictly
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert is not None and key is not None:
            with _as_file(cert.read() + b"\n" + key.read()) as path:
                context.load_cert_chain(path)
        return context


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield a path from which OpenSSL can read `data`: in memory on Linux, also with a read-only root file system;
    elsewhere a temporary file that only this user can read."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("client-certificate")
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        with tempfile.NamedTemporaryFile() as file:  # created with mode 0600
            file.write(data)
            file.flush()
            yield file.name


def is_header(text: str) -> bool:
    """Return whether the text is valid in an HTTP header: no control characters and no lone surrogates."""
    return not any(character < " " or character == "\x7f" or "\ud800" <= character < "\ue000" for character in text)
