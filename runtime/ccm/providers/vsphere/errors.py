# SPDX-License-Identifier: Apache-2.0
"""Converts what pyvmomi and vCenter raise to errors of the contract. No error contains a credential."""

from __future__ import annotations

import http.client
import ssl
from typing import Any
from xml.parsers.expat import ExpatError

from ccm.cloud import CloudError, Transient, Unauthorized
from ccm.cloud.toolkit.untrusted_text import printable, shorten

#: The key that sets `request_timeout`, for messages.
TIMEOUT = "request-timeout of [Runtime], in YAML requestTimeout"
#: Faults about the user and the user's rights. `NotAuthenticated` is one of them if it follows a new login.
_DENIED = {
    "InvalidLogin": "it refuses user and password",
    "NotAuthenticated": "the session has ended",
    "PasswordExpired": "the password has expired",
    "InvalidLocale": "it refuses the login",
}


def fault_name(error: BaseException) -> str:
    """Return the name of a fault of vCenter, such as `NoPermission`; for another error, its class."""
    return type(error).__name__.rpartition(".")[2]


def no_permission(fault: Any, call: str, server: str) -> Unauthorized:
    """Return the error for the fault `NoPermission`: it names the call, the object, and the right that is missing."""
    right, managed = str(getattr(fault, "privilegeId", "") or "a right"), getattr(fault, "object", None)
    where = "" if managed is None else f" on {type(managed)._wsdlName} {managed._moId}"
    text = _short(f"{call}: the user does not have {right}{where}")
    return Unauthorized(f"vCenter {server}: {text}: give the user a role with it there, with propagation")


def translated(error: Exception, server: str, timeout: float) -> CloudError:
    """Return the contract's error for an exception. `timeout`: of a request, in seconds."""
    if isinstance(error, CloudError):
        return error
    name = fault_name(error)
    if name in _DENIED:
        return Unauthorized(f"vCenter {server}: {_DENIED[name]}: check the user, the password and the rights")
    if isinstance(error, ssl.SSLCertVerificationError):
        return Transient(f"vCenter {server}: its certificate is not trusted ({error.verify_message}): check ca-file")
    if isinstance(error, TimeoutError):
        return Transient.late(f"vCenter {server}", timeout, TIMEOUT)
    if isinstance(error, OSError | http.client.HTTPException):
        return Transient(f"vCenter {server}: {_short(str(error) or name)}")
    if isinstance(error, ExpatError | ValueError | EOFError):
        return Transient(f"vCenter {server}: the answer cannot be read ({name})")
    reason = getattr(error, "msg", None) or getattr(error, "faultMessage", None) or ""
    return Transient(f"vCenter {server}: {name}{': ' if reason else ''}{_short(str(reason))}")


def _short(text: str) -> str:
    return shorten(printable(text), 200)
