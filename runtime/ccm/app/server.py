# SPDX-License-Identifier: Apache-2.0
"""HTTPS on the secure port: health for everybody, metrics for those whom the API server lets read them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from .auth import Authorizer
from .health import Check, report
from .options import Options

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CertificateError(Exception):
    """The serving certificate cannot be used; the message names the file."""


def application(
    live: Mapping[str, Check], ready: Mapping[str, Check], authorizer: Authorizer, always_allow: tuple[str, ...]
) -> web.Application:
    """`/healthz` `/livez` `/readyz` (with `?verbose` and `?exclude=`) and `/metrics`."""

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in always_allow:
            status, reason = await authorizer.check(request.headers.get("Authorization", ""), request.path)
            if status != 200:
                return web.Response(status=status, text=reason + "\n")
        return await handler(request)

    def health(checks: Mapping[str, Check]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            exclude = frozenset(request.query.getall("exclude", []))
            status, text = report(checks, verbose="verbose" in request.query, exclude=exclude)
            return web.Response(status=status, text=text)

        return handle

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})

    app = web.Application(middlewares=[authorize])
    app.router.add_get("/healthz", health(live))
    app.router.add_get("/livez", health(live))
    app.router.add_get("/readyz", health(ready))
    app.router.add_get("/metrics", metrics)
    return app


async def serve(app: web.Application, options: Options) -> web.AppRunner:
    """Start serving; the caller cleans the runner up. Raises CertificateError, or OSError when the port is taken."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, options.bind_address, options.secure_port, ssl_context=tls_context(options))
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


def tls_context(options: Options) -> ssl.SSLContext:
    """From `--tls-cert-file`, else from `--cert-dir`, else self-signed for this run."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = options.tls_cert_file, options.tls_private_key_file
    if not certificate and options.cert_dir:
        certificate = str(Path(options.cert_dir, "cloud-controller-manager.crt"))
        key = str(Path(options.cert_dir, "cloud-controller-manager.key"))
    if certificate:
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise CertificateError(
                f"serving certificate {certificate} with key {key} cannot be used: {error}"
            ) from None
        return context
    with tempfile.TemporaryDirectory() as directory:
        pem = Path(directory, "self-signed.pem")
        pem.write_bytes(_self_signed())
        context.load_cert_chain(pem)
    return context


def _self_signed() -> bytes:
    """Key and certificate for localhost, valid for a year, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cloud-controller-manager")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))],
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
