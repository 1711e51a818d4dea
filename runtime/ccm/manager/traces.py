# SPDX-License-Identifier: Apache-2.0
"""Switches traces on if the environment names a collector, in the variables that OpenTelemetry defines.

OpenTelemetry is an extra. It is imported only if traces are on (`trace_export`), because it costs memory and time.
Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping

from ccm.base.start_error import StartError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
#: The packages that the extra installs.
PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def start() -> Callable[[], None]:
    """Record and export traces if the environment says so. Return a function that stops it. Raises StartError if
    OpenTelemetry is not installed, or if the environment's settings cannot be used."""
    if not wanted(os.environ):
        return lambda: None
    if not all(map(_installed, PACKAGES)):
        raise StartError(
            f"{_first_of(ENDPOINTS, os.environ)} asks for traces, but OpenTelemetry is not installed. Install the "
            "extra: pip install 'outoftree-ccm[otel]', or add otel to EXTRAS of the image; or unset the variable"
        )
    from . import trace_export

    return trace_export.start()


def wanted(environment: Mapping[str, str]) -> bool:
    """Return whether to export traces. Raises StartError if the environment asks for a protocol that we do not
    speak."""
    endpoint, protocol = _first_of(ENDPOINTS, environment), _first_of(PROTOCOLS, environment)
    if not endpoint or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if protocol and environment[protocol] != PROTOCOL:
        raise StartError(
            f"{protocol} is {environment[protocol]!r}, but traces are exported by {PROTOCOL} only. Unset it, and set "
            f"{endpoint} to where the collector takes OTLP over HTTP, usually port 4318"
        )
    return True


def _first_of(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Return the name of the first variable that is set and not empty; "" if there is none."""
    return next((name for name in names if environment.get(name)), "")


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # a parent of it
        return False
