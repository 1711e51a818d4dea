# SPDX-License-Identifier: Apache-2.0
"""Fields that say what the current work is about, for every log line during that work, even those of libraries.

The fields follow the work into the tasks that it starts, as context variables do. `manager.logs` shows them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("log fields", default={})  # noqa: B039  # it is never changed


@contextlib.contextmanager
def about(**fields: str) -> Iterator[None]:
    """Add these fields to every line that is logged meanwhile. The values may be untrusted text."""
    token = _FIELDS.set({**_FIELDS.get(), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def fields() -> Mapping[str, str]:
    """Return the fields of the present work, in the order in which they were added."""
    return _FIELDS.get()
