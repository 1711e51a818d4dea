# SPDX-License-Identifier: Apache-2.0
"""TLS for serving: certificates by server name, reloaded when their files change, and optional client certificates.

Each handshake checks the files (a few `stat` calls), so a rotated certificate applies from the next connection on.
While the new files are invalid, the old certificates stay in use.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import logging
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ccm.options.tls_options import CIPHERS, VERSIONS, TlsOptions

log = logging.getLogger(__name__)


class CertificateError(Exception):
    """A certificate is invalid; the message names the file."""


class ServingTls:
    """The TLS context for serving, which reloads itself.

    `client_cas` returns the current PEM bundle that verifies client certificates; None: do not request them. Clients
    may connect without a certificate, unless `required` is set.
    """

    def __init__(
        self, options: TlsOptions, client_cas: Callable[[], bytes] | None = None, *, required: bool = False
    ) -> None:
        """Load the certificates, or generate a self-signed one if none is configured. Raises CertificateError if a file
        cannot be used."""
        self._options, self._client_cas, self._required = options, client_cas, required
        self._self_signed = b"" if options.certificate else self_signed()
        self._loaded: object = None
        self._reported = ""
        self._default: ssl.SSLContext
        self._named: list[tuple[tuple[str, ...], ssl.SSLContext]] = []
        self._load(self._look())
        #: The context of the server. Each handshake continues with the context that `_choose` selects.
        self.context = self._context(options.certificate, options.key, b"")
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext) -> None:
        """Choose the certificate of a handshake by the server name. OpenSSL calls this in each handshake, with or
        without a server name."""
        self._refresh()
        connection.context = self._for(server_name or "")

    def _for(self, server_name: str) -> ssl.SSLContext:
        for names, context in self._named:
            if any(_matches(server_name, name) for name in names):
                return context
        return self._default

    def _refresh(self) -> None:
        try:
            state = self._look()
            if state != self._loaded:
                self._load(state)
                log.info("reloaded the serving certificates")
            self._reported = ""
        except (CertificateError, OSError) as error:
            if self._reported != str(error):
                log.error("cannot reload the serving certificates, keeping the old ones: %s", error)
            self._reported = str(error)

    def _look(self) -> object:
        """Return a value that changes when any file or the bundle of client CAs changes. Raises CertificateError if a
        file cannot be read."""
        o = self._options
        files = [o.certificate, o.key, *(file for pair in o.sni for file in (pair.certificate, pair.key))]
        return [_fingerprint(file) for file in files if file], self._client_cas() if self._client_cas else b""

    def _load(self, state: object) -> None:
        o = self._options
        cas = self._client_cas() if self._client_cas else b""
        default = self._context(o.certificate, o.key, cas)
        named = [
            (pair.names or _names_in(pair.certificate), self._context(pair.certificate, pair.key, cas))
            for pair in o.sni
        ]
        self._default, self._named, self._loaded = default, named, state

    def _context(self, certificate: str, key: str, cas: bytes) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = VERSIONS.get(self._options.min_version, ssl.TLSVersion.TLSv1_2)
        # Verify like Go: CAs need not follow RFC 5280 strictly (Python 3.13 requires that), and an intermediate CA in
        # the bundle is trusted like a root.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # A resumed session would present a client certificate that is not verified again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        ciphers = [CIPHERS[name] for name in self._options.cipher_suites if CIPHERS[name]]
        if ciphers:
            context.set_ciphers(":".join(ciphers))
        if self._client_cas is not None:
            context.verify_mode = ssl.CERT_REQUIRED if self._required else ssl.CERT_OPTIONAL
            if cas:
                try:
                    context.load_verify_locations(cadata=cas.decode("ascii"))
                except (ValueError, ssl.SSLError) as error:
                    raise CertificateError(f"invalid client CAs: {error}") from None
        with _pem(self._self_signed) if not certificate else contextlib.nullcontext(certificate) as path:
            try:
                context.load_cert_chain(path, key or None)
            except (OSError, ssl.SSLError) as error:
                raise CertificateError(
                    f"serving certificate {certificate} with key {key} cannot be used: {error}"
                ) from None
        return context


def _matches(server_name: str, pattern: str) -> bool:
    """Return whether a server name matches a pattern: `*.example.org` matches one label, as in certificates."""
    if not pattern.startswith("*."):
        return server_name.lower() == pattern.lower()
    return server_name.count(".") == pattern.count(".") and fnmatch.fnmatch(server_name.lower(), pattern.lower())


def _fingerprint(path: str) -> tuple[str, int, int, int]:
    try:
        stat = os.stat(path)
    except OSError as error:
        raise CertificateError(f"serving certificate {path} cannot be used: {error.strerror}") from None
    return path, stat.st_mtime_ns, stat.st_size, stat.st_ino


def _names_in(path: str) -> tuple[str, ...]:
    """Return the DNS names of a certificate; its common names if it has no alternative names at all. Raises
    CertificateError."""
    from .x509_certificates import names_in

    try:
        return names_in(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise CertificateError(f"serving certificate {path} cannot be used: {error}") from None


@functools.cache
def self_signed() -> bytes:
    """Return key and certificate for localhost, valid for a year, in PEM: the same ones for all ports of this process.

    Another process creates them in 0.1 s, because the library that does so would stay in the memory of this process. If
    the other process fails, this one creates them.
    """
    try:
        command = [sys.executable, "-m", "ccm.serving.x509_certificates"]
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("cannot create the serving certificate in a process of its own, creating it here: %s", error)
        from . import x509_certificates

        return x509_certificates.self_signed()


@contextlib.contextmanager
def _pem(data: bytes) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "self-signed.pem")
        path.touch(mode=0o600)
        path.write_bytes(data)
        yield str(path)
