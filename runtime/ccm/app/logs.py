# SPDX-License-Identifier: Apache-2.0
"""Log lines: one line each, UTC, as text or JSON."""

from __future__ import annotations

import datetime
import json
import logging
import sys


class _Line(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Json(_Line):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(format: str, verbosity: int) -> None:
    """Log to standard error. `verbosity` 0-3: what a person operating it wants to know; 4 and more: everything."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if format == "json" else _Line("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbosity >= 4 else logging.INFO, force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
