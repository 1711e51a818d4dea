# SPDX-License-Identifier: Apache-2.0
"""Says what is wrong with a connection. aiohttp's own text names Python objects, which help no reader of a log."""

from __future__ import annotations

import errno
import os

import aiohttp


def connection_problem(error: BaseException) -> str:
    """Return the cause in words, with host and port if connecting failed; an error without text is named by its
    type."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = str(error.certificate_error)
    elif (number := error.os_error.errno) is not None and number in errno.errorcode:
        cause = os.strerror(number).lower()
    else:  # getaddrinfo has error numbers of its own
        cause = error.os_error.strerror or str(error.os_error)
    return f"cannot connect to {error.host}:{error.port}: {cause}"
