# SPDX-License-Identifier: Apache-2.0
"""TLS contexts that read the system's authorities when they are first used.

aiohttp makes two contexts while it is imported. To read the system's authorities into them takes a seventh of the CPU
until a process sends its first request. If API server and cloud have authorities of their own, it uses neither.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any


class _Late(ssl.SSLContext):
    """One that trusts nobody yet. Its first connection makes it what it would have been."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self._read()
        return self.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        self._read()
        return self.wrap_socket(*arguments, **options)

    def _read(self) -> None:
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]  # so these methods are no longer its own
        self.set_default_verify_paths()


@contextlib.contextmanager
def late_certificates() -> Iterator[None]:
    """Contexts that are made within read the system's authorities later. For the import of a module at start: what
    other threads make meanwhile would be postponed, too."""

    def postpone(context: ssl.SSLContext) -> None:
        context.__class__ = _Late

    ssl.SSLContext.set_default_verify_paths = postpone  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths  # it was, and is again, that of the base class
