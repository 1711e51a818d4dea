# SPDX-License-Identifier: Apache-2.0
"""TLS contexts that read the system's certificate authorities when they are first used.

aiohttp creates two contexts while it is imported. Reading the system's authorities into them takes a seventh of the CPU
that a process uses until its first request. A process whose API server and cloud have authorities of their own uses
neither context.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any


class _Late(ssl.SSLContext):
    """A context without authorities. Its first connection reads the system's and makes it a plain `SSLContext`."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self._read()
        return self.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        self._read()
        return self.wrap_socket(*arguments, **options)

    def _read(self) -> None:
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]  # without the methods of this class
        self.set_default_verify_paths()


@contextlib.contextmanager
def late_certificates() -> Iterator[None]:
    """Let the contexts that are created in this block read the system's authorities at their first connection. Use it
    only to import a module at start, because it also affects contexts that other threads create meanwhile."""

    def postpone(context: ssl.SSLContext) -> None:
        context.__class__ = _Late

    ssl.SSLContext.set_default_verify_paths = postpone  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths  # the method of the base class applies again
