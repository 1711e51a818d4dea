# SPDX-License-Identifier: Apache-2.0
"""Formats log records as text or JSON, with times in UTC. A message is always one line.

Messages quote text from users and kubelets. Therefore messages are escaped and shortened, and each line of a traceback
is indented, so that such text cannot forge log lines or control a terminal.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from types import TracebackType
from typing import TypeAlias

from ccm.base import log_context
from ccm.base.text import printable, shorten

#: The maximum length of a message and of a line of a traceback, in characters before escaping.
MESSAGE_LIMIT, TRACE_LINE_LIMIT = 4096, 1000
#: The maximum length of the value of a field, in characters before escaping.
FIELD_LIMIT = 300
#: How many lines of a traceback are logged.
TRACE_LINES = 200

_ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _Line(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={json.dumps(value)}" for name, value in _fields().items())
        record.message = _shown(record.message) + fields
        return super().formatMessage(record)

    def formatException(self, ei: _ExcInfo) -> str:
        lines = super().formatException(ei).splitlines()
        shown = [f"    {printable(shorten(line, TRACE_LINE_LIMIT))}" for line in lines[:TRACE_LINES]]
        return "\n".join([*shown, f"    ... ({len(lines)} lines)"] if len(lines) > TRACE_LINES else shown)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Json(_Line):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _shown(record.getMessage()),
            **_fields(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _shown(message: str) -> str:
    return printable(shorten(message, MESSAGE_LIMIT))


def _fields() -> dict[str, str]:
    """Return what the line is about: `queue` and `object`, and for a call to the cloud `call` and `request`."""
    return {name: printable(shorten(value, FIELD_LIMIT)) for name, value in log_context.fields().items()}


def configure(format: str, verbosity: int) -> None:
    """Log to standard error. `verbosity` 0-3: what an operator needs; 4 and more: everything."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if format == "json" else _Line("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbosity >= 4 else logging.INFO, force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    # No line names its place in the code, and finding that place takes as long as the rest of the record.
    logging._srcfile = None  # as Python's logging HOWTO says under "Optimization"
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
