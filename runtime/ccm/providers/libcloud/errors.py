# SPDX-License-Identifier: Apache-2.0
"""Converts what drivers raise to errors of the contract. Pure.

Drivers raise exceptions of many kinds: those of libcloud, those of requests, `Exception("...")`, and KeyError for an
answer of another shape. No exception says that a machine does not exist, so none becomes NotFound. Exceptions of
requests quote the URL, which has a signature in some clouds, so their text is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ccm.cloud import CloudError, RateLimited, Transient, Unauthorized
from ccm.cloud.toolkit.untrusted_text import concealed, printable, shorten

QUOTED = 200
#: A signature in a URL. A cloud's message may quote it.
SIGNATURE = re.compile(r"(?i)\bsignature=[^&\s]*")


def translated(
    error: BaseException, cloud: str, status: int, pause: float | None, secrets: Iterable[str], timeout: float
) -> CloudError:
    """Return the contract's error for what a driver raised. `status`: of the last answer, 0 if the cloud did not
    answer. `pause`: how many seconds the cloud asks to wait, None if it does not say. `secrets`: texts that the error
    may not contain. `timeout`: that of a request, in seconds."""
    if isinstance(error, CloudError):
        return error
    name = type(error).__name__
    if name == "InvalidCredsError" or status in (401, 403):
        reason = f"HTTP {status}" if status >= 300 else "it refuses the credentials"
        return Unauthorized(f"{cloud}: {reason}: check the credentials and their rights")
    if name == "RateLimitReachedError" or status == 429:
        return RateLimited(f"{cloud}: too many requests", retry_after=pause)
    if isinstance(error, TimeoutError) or _is_late(error) or any(map(_is_late, error.args)):
        return Transient.late(cloud, timeout, "request_timeout")
    if name == "SSLError":
        return Transient(f"{cloud}: its certificate is not trusted: check ca_file")
    if type(error).__module__.partition(".")[0] in ("requests", "urllib3") or isinstance(error, OSError):
        return Transient(f"{cloud}: cannot be reached ({name})")
    if status >= 300:
        return Transient(f"{cloud}: HTTP {status}: {redacted(_text(error), secrets)}")
    return Transient(f"{cloud}: the answer cannot be read ({name})")


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return the text on one line, shortened, and without secrets, also in the spellings that they have in URLs."""
    text = SIGNATURE.sub("***", concealed(text, secrets, shortest=1))
    return shorten(printable(text), QUOTED)


def _is_late(error: object) -> bool:
    """Return whether this is a timeout. The caller also passes the arguments of an error, because requests wraps the
    timeout of an answer that began but did not end."""
    return "Timeout" in type(error).__name__


def _text(error: BaseException) -> str:
    """Return what the cloud said. If its text has HTML, such as a proxy's page, return a sentence instead."""
    text = str(getattr(error, "value", "") or getattr(error, "message", "") or error)
    return "an answer that is not from the cloud" if "<" in text else text
