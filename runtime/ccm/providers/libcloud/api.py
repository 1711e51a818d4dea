# SPDX-License-Identifier: Apache-2.0
"""Runs one driver of libcloud, with one object for each thread and zone, and records the cloud's answers.

Everything here blocks. libcloud is imported when the provider starts, because only users of this provider need it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ccm.cloud.toolkit.retry_after import retry_after

from .drivers import Driver
from .errors import translated
from .instance_rules import Answer, Listing, Machine, kind
from .settings import Settings

#: Environment variables that make libcloud write whole requests, with credentials, to a file, or retry requests.
UNSAFE_VARIABLES = ("LIBCLOUD_DEBUG", "LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS")
#: Tables in which drivers look up a machine's state. Some drivers raise KeyError for a state that they do not know.
STATE_TABLES = ("NODE_STATE_MAP", "LINODE_STATES", "NODE_STATE")


def library_problem() -> str:
    """Return why libcloud cannot be used, "" if it can."""
    if importlib.util.find_spec("libcloud") is None:
        return "the provider libcloud needs the package apache-libcloud: pip install 'outoftree-ccm[libcloud]'"
    return ""


def library_class(driver: Driver) -> type[Any]:
    """Return the driver's class. Before the import, switch off what would log requests with their secrets, or retry
    them."""
    for name in UNSAFE_VARIABLES:
        os.environ.pop(name, None)
    # At --v=4 and more, urllib3 would log each URL, in which some clouds have a signature.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    module, name = driver.library_class
    class_: type[Any] = getattr(importlib.import_module(f"libcloud.compute.drivers.{module}"), name)
    return class_


class DriverCalls:
    """Listings by one driver. libcloud's objects are not safe for threads, so each thread has its own."""

    def __init__(self, settings: Settings, secrets: Mapping[str, str]) -> None:
        """`secrets`: argument -> the content of its file."""
        self._settings = settings
        self._arguments = {**settings.arguments, **secrets}
        self._local = threading.local()

    @property
    def arguments(self) -> Mapping[str, str]:
        """The configured arguments by name."""
        return self._arguments

    @property
    def secrets(self) -> list[str]:
        """Texts that no message may contain."""
        arguments = self._settings.driver.arguments
        return [text for name, text in self._arguments.items() if arguments[name].secret and text]

    def list_machines(self, zone: str) -> Listing:
        """List the machines of a zone, or all machines if `zone` is "". Raises CloudErrors only."""
        driver = self._settings.driver
        answers: list[Answer] = []
        self._local.answers = answers
        try:
            nodes = self._object(zone).list_nodes(**driver.list_with)
            if not isinstance(nodes, list):
                raise TypeError("no list of nodes")
            return Listing(zone, tuple(map(_machine, nodes)), tuple(answers))
        except Exception as error:
            self._objects().pop(zone, None)  # its connection or its token may be the cause
            last = answers[-1] if answers else Answer("", 0)
            pause = retry_after({"Retry-After": last.headers.get("retry-after", "")}, b"", time.time())
            timeout = self._settings.request_timeout
            raise translated(error, driver.cloud, last.status, pause, self.secrets, timeout) from None

    def _objects(self) -> dict[str, Any]:
        objects: dict[str, Any] = self._local.__dict__.setdefault("objects", {})
        return objects

    def _object(self, zone: str) -> Any:
        objects = self._objects()
        if zone not in objects:
            objects[zone] = self._created(zone)
        return objects[zone]

    def _created(self, zone: str) -> Any:
        facts = self._settings.driver
        base = library_class(facts)
        # The driver's own connections, which report to this object, each with the configured address and timeout.
        watched = _watched(base.connectionCls.conn_class, self._settings, zone, self._local)
        connection = type(base.connectionCls.__name__, (base.connectionCls,), {"conn_class": watched})
        cls = type(base.__name__, (base,), {"connectionCls": connection})
        arguments = {facts.arguments[name].to: text for name, text in self._arguments.items()}
        # Do not call the driver's own `__new__`, which chooses a version of the driver: the table already names one.
        created: Any = object.__new__(cls)
        created.__init__(**arguments, **facts.fixed)
        for name in STATE_TABLES:
            if isinstance(table := getattr(created, name, None), dict):
                setattr(created, name, _States(table))
        return created


class _States(dict[Any, Any]):
    """A table of states that maps every missing state to "unknown"."""

    def __missing__(self, key: Any) -> str:
        return "unknown"


def _watched(base: type[Any], settings: Settings, zone: str, local: threading.local) -> type[Any]:
    """Return a class of connections that uses the configured address and timeout, and records each answer."""
    url = urlsplit(settings.endpoint) if settings.endpoint else None
    prefix = settings.prefix(zone)

    class Watched(base):  # type: ignore[misc]
        def __init__(self, host: str, port: int, secure: Any = None, **others: Any) -> None:
            if url is not None:
                secure = url.scheme == "https"
                host, port = url.hostname or "", url.port or (443 if secure else 80)
            super().__init__(host=host, port=port, secure=secure, **others)
            self.session.timeout = settings.request_timeout
            if settings.ca_file:
                self.ca_cert = settings.ca_file

        def request(self, method: str, url: str, body: Any = None, headers: Any = None, **others: Any) -> None:
            headers = {name: text for name, text in (headers or {}).items() if name.lower() != "host"}
            path = url if url.startswith(("http://", "https://", f"{prefix}/")) else f"{prefix}/{url.lstrip('/')}"
            super().request(method, path, body=body, headers=headers, **others)
            local.answers.append(_answer(settings.driver, url, self.response))

    return Watched


def _answer(driver: Driver, url: str, response: Any) -> Answer:
    where = urlsplit(url)
    path = f"{where.path}?{where.query}" if where.query else where.path
    content = None
    if kind(driver, path) is not None:
        try:
            content = json.loads(response.text)
        except ValueError:
            content = None  # the driver fails on it, too
    headers = {name.lower(): str(text) for name, text in response.headers.items()}
    return Answer(path, int(response.status_code), headers, content)


def _machine(node: Any) -> Machine:
    return Machine(
        id=str(node.id),
        name=str(node.name or ""),
        state=str(getattr(node.state, "value", node.state) or "unknown").lower(),
        public=tuple(str(each or "") for each in node.public_ips or ()),
        private=tuple(str(each or "") for each in node.private_ips or ()),
    )
