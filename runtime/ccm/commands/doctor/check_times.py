# SPDX-License-Identifier: Apache-2.0
"""Checks clocks and certificates. Only `server_certificate` does I/O: a TLS handshake without a request."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import datetime
import json
import ssl
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from cryptography import x509

from ..asking.cluster_objects import NodeLease, SigningRequest
from ..asking.leading import seconds_since
from .diagnosis import Check, State, some

CLOCKS, CERTIFICATES = "clocks", "certificates"
#: Seconds by which clocks may differ.
SKEW = 5.0
#: A Ready Node whose Lease seems older than this, in seconds, has a wrong clock: a kubelet renews its Lease every 10 s,
#: and a Node is NotReady after 50 s without a renewal (before Kubernetes 1.32, after 40 s).
SILENT = 60.0
#: A certificate that is valid for less than this is worth a warning.
SOON = datetime.timedelta(days=30)
#: Seconds for a TLS handshake.
PATIENCE = 10.0
SERVING_SIGNER = "kubernetes.io/kubelet-serving"


def clocks(
    server: datetime.datetime | None, here: datetime.datetime, leases: Iterable[NodeLease], ready: Iterable[str]
) -> list[Check]:
    """Compare the clocks of this machine and of Nodes with the API server's. `server`: the API server's time, None if
    it is not known. `leases`: the Leases of Nodes. `ready`: the names of Ready Nodes."""
    checks = []
    if server is not None:
        ahead = (here - server).total_seconds()
        if abs(ahead) > SKEW:
            way = "ahead of" if ahead > 0 else "behind"
            text = f"the clock here is {abs(ahead):.0f} s {way} the API server's"
            checks.append(Check(CLOCKS, State.WARNING, text, "correct the clock (NTP) of the machine that is wrong"))
        else:
            checks.append(Check(CLOCKS, State.OK, f"the clock here is within {SKEW:.0f} s of the API server's"))
    now, ready_names = server or here, set(ready)
    fast, slow = [], []
    for lease in leases:
        since = seconds_since(lease.spec.renew_time, now)
        if since is not None and since < -SKEW:
            fast.append(lease.metadata.name)
        elif since is not None and since > SILENT and lease.metadata.name in ready_names:
            slow.append(lease.metadata.name)
    for names, what in ((fast, "ahead"), (slow, "behind")):
        if names:
            text = f"by their Leases, the clocks of {some(names)} are {what} by more than {SKEW:.0f} s"
            checks.append(Check(CLOCKS, State.WARNING, text, "correct the clocks (NTP) of these machines"))
    return checks


def certificates(contents: Mapping[str, bytes], now: datetime.datetime) -> list[Check]:
    """Report when certificates expire. `contents`: what a certificate is -> PEM, or DER. Of several in PEM, the first
    to expire counts."""
    checks = []
    for what, data in contents.items():
        try:
            several = (
                [x509.load_der_x509_certificate(data)] if data[:1] == b"0" else x509.load_pem_x509_certificates(data)
            )
        except ValueError as error:
            checks.append(Check(CERTIFICATES, State.NOTE, f"{what}: cannot be read: {error}"))
            continue
        checks.append(expiry(what, min(each.not_valid_after_utc for each in several), now))
    return checks


def token(text: str, now: datetime.datetime, whose: str) -> list[Check]:
    """Report when a token expires, if it is a JWT that says so. `whose`: "this kubeconfig" or "this Pod", for
    messages."""
    parts = text.split(".")
    if len(parts) != 3:
        return []
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = datetime.datetime.fromtimestamp(claims["exp"], datetime.UTC)
    except (binascii.Error, ValueError, KeyError, TypeError, OverflowError, OSError):
        return []
    if ends - now > datetime.timedelta(0):
        return [Check(CERTIFICATES, State.OK, f"the token of {whose} is valid until {ends:%Y-%m-%d %H:%M} UTC")]
    return [expiry(f"the token of {whose}", ends, now)]


def expiry(what: str, ends: datetime.datetime, now: datetime.datetime) -> Check:
    """Report when something expires. Pure."""
    date = f"{ends:%Y-%m-%d %H:%M} UTC"
    if ends <= now:
        return Check(CERTIFICATES, State.PROBLEM, f"{what} expired at {date}", "renew it")
    if ends - now < SOON:
        return Check(CERTIFICATES, State.WARNING, f"{what} expires at {date}", "renew it")
    return Check(CERTIFICATES, State.OK, f"{what} is valid until {date}")


def requests(requests: Iterable[SigningRequest]) -> list[Check]:
    """Report requests of kubelets for serving certificates that nobody has approved."""
    waiting = [
        request.spec.username.removeprefix("system:node:")
        for request in requests
        if request.spec.signer_name == SERVING_SIGNER
        and not request.status.conditions
        and not request.status.certificate
    ]
    if not waiting:
        return []
    text = f"the kubelets of {some(set(waiting))} wait for their serving certificates ({SERVING_SIGNER})"
    return [Check(CERTIFICATES, State.WARNING, text, "kubectl get csr, then kubectl certificate approve NAME")]


async def server_certificate(url: str, server_name: str | None) -> bytes:
    """Return the certificate of a server, DER; b"" for a URL without https. Raises OSError if the connection or its
    handshake fails."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        return b""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # an expired certificate must not end this
    async with asyncio.timeout(PATIENCE):
        _, writer = await asyncio.open_connection(
            parts.hostname, parts.port or 443, ssl=context, server_hostname=server_name or parts.hostname
        )
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return shown
