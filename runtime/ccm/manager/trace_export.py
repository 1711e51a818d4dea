# SPDX-License-Identifier: Apache-2.0
"""Records spans with OpenTelemetry, and exports them by OTLP over HTTP from a thread of its own.

Traced code only appends to a bounded queue (OTEL_BSP_MAX_QUEUE_SIZE), which drops spans while the collector does not
take them. Our provider of tracers is not the global one, so libraries with instrumentation of their own add no spans.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
import time
from collections.abc import Callable
from types import TracebackType

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ccm import __version__
from ccm.base import tracing
from ccm.base.start_error import StartError
from ccm.base.text import printable, shorten

from .logs import FIELD_LIMIT

log = logging.getLogger(__name__)

#: The name of the service, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has another.
SERVICE_NAME = "cloud-controller-manager"
#: How long sending the last spans may take at shutdown, in seconds.
FLUSH = 2.0
#: Seconds within which at most one line about the export is logged.
SELDOM = 300.0
#: Loggers whose messages say why an export failed. Other loggers of OpenTelemetry quote headers, which may contain
#: credentials.
_SHOWN = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk.")
#: The part of a URL that may contain a password.
_USER = re.compile(r"[^\s/'\"]+@")


def start() -> Callable[[], None]:
    """Record all spans from now on. Return a function that stops the recording and sends the last spans. Raises
    StartError if the environment's settings cannot be used."""
    library = logging.getLogger("opentelemetry")
    library.propagate, library.handlers = False, [_Seldom()]
    library.setLevel(logging.WARNING)
    # urllib3 logs a line for each export at -v=4. The SDK's thread has this name. The filter asks for the current
    # thread, because log records do not name theirs (logs.configure).
    logging.getLogger("urllib3.connectionpool").addFilter(lambda _: "OtelBatch" not in threading.current_thread().name)
    try:
        resource = Resource.create({"service.name": SERVICE_NAME, "service.version": __version__})
        provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except Exception as error:
        raise StartError(f"traces cannot be exported with the OTEL_ variables of the environment: {error}") from None
    tracer = provider.get_tracer("ccm", __version__)
    tracing.switch(functools.partial(_Recorded, tracer))
    log.info("traces are exported by OTLP over HTTP")

    def stop() -> None:
        tracing.switch(None)
        log.debug("sending the last traces, for at most %g s", FLUSH)
        # A daemon thread, so that a collector that hangs does not keep this process alive.
        flushing = threading.Thread(target=provider.shutdown, name="export the last spans", daemon=True)
        flushing.start()
        flushing.join(FLUSH)

    return stop


class _Recorded(tracing.Span):
    """A span that is recorded, if the sampler selects it."""

    def __init__(self, tracer: trace.Tracer, name: str, attributes: tracing.Attributes, outgoing: bool) -> None:
        kind = trace.SpanKind.CLIENT if outgoing else trace.SpanKind.INTERNAL
        self._span = tracer.start_span(name, kind=kind, attributes=_shown(attributes))

    def __enter__(self) -> tracing.Span:
        self._outer = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.failed(error)
        context.detach(self._outer)
        self._span.end()

    def note(self, attributes: tracing.Attributes) -> None:
        self._span.set_attributes(_shown(attributes))

    def failed(self, error: BaseException) -> None:
        self.note({"error.type": type(error).__name__})
        text = str(error) or type(error).__name__
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, printable(shorten(text, FIELD_LIMIT))))


def _shown(attributes: tracing.Attributes) -> dict[str, str | int]:
    """Return the values as the log shows its fields: short, on one line."""
    return {
        name: printable(shorten(value, FIELD_LIMIT)) if isinstance(value, str) else value
        for name, value in attributes.items()
    }


class _Seldom(logging.Handler):
    """Logs what OpenTelemetry says about the export, at most one line in SELDOM seconds."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now < self._next or not record.name.startswith(_SHOWN):
            return
        self._next = now + SELDOM
        error = record.exc_info[1] if record.exc_info else None
        why = f" ({type(error).__name__})" if error else ""
        log.warning(
            "traces: %s%s. Only traces are lost; the next such line follows in %d minutes at the earliest",
            _USER.sub("...@", record.getMessage().rstrip(".")),
            why,
            SELDOM // 60,
        )
