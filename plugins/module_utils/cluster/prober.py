# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a URL once, or runs a process that asks it until somebody requests the result.

The process has a folder, which only its user can read. A caller requests the result by removing the file C(alive) there, and the
process then writes C(result). If the process stops before such a request, it removes the folder. The process has no credentials.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import ssl
import tempfile
import time
from typing import Any, Callable, Dict
from urllib.parse import urlsplit

#: Maximum number of bytes that are read of an answer.
LONGEST = 65536
SCHEMES = ("http", "https", "tcp")
#: Files of the process.
ALIVE, RESULT = "alive", "result"


def problem_of(url: str) -> str:
    """Return what is wrong with a URL, '' if nothing is."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        return str(exc)
    if parts.scheme not in SCHEMES or not parts.hostname:
        return "it must begin with http://, https:// or tcp:// and name a host"
    if parts.username or parts.password:
        return "it must not have a password, which would be shown"
    return "tcp:// needs a port" if parts.scheme == "tcp" and not port else ""


def ask(url: str, timeout: float) -> str:
    """Ask on a new connection; return '' if a server answers, else how the attempt ended. A status of 500 or more does not count as an answer.

    Certificates are not checked, because the only question is whether a server answers.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "tcp":
            socket.create_connection((parts.hostname, parts.port), timeout).close()
            return ""
        status = _get(parts, timeout)
    except socket.timeout:
        return "timeout"
    except socket.gaierror:
        return "name"
    except ConnectionRefusedError:
        return "refused"
    except (ConnectionError, http.client.HTTPException):
        return "reset"
    except OSError:
        return "unreachable"
    return "http {0}".format(status) if status >= 500 else ""


def _get(parts: Any, timeout: float) -> int:
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.request("GET", (parts.path or "/") + ("?" + parts.query if parts.query else ""), headers={"Connection": "close"})
        answer = connection.getresponse()
        answer.read(LONGEST)
        return answer.status
    finally:
        connection.close()


def begin(process: Callable[[str], None]) -> str:
    """Create a folder, start C(process) with it in the background, and return the folder. Raises OSError."""
    folder = tempfile.mkdtemp(prefix="outoftree-ccm-probe-")
    _write(os.path.join(folder, ALIVE), "")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return folder
    # The process does not keep the module's standard streams, because Ansible waits until they are closed. It also skips the
    # module's clean-up at exit.
    try:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            os.chdir("/")
            process(folder)
    finally:
        os._exit(0)


def _write(path: str, text: str) -> None:
    """Write a file in one step, so that its reader never sees half of it."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def goes_on(folder: str) -> bool:
    """Return whether nobody has asked for the result yet."""
    return os.path.exists(os.path.join(folder, ALIVE))


def leave(folder: str, result: Dict[str, Any]) -> None:
    """Write the result if somebody has asked for it; otherwise remove the folder."""
    if goes_on(folder):
        shutil.rmtree(folder, ignore_errors=True)
    elif os.path.isdir(folder):
        _write(os.path.join(folder, RESULT), json.dumps(result))


def end(folder: str, seconds: float) -> Dict[str, Any]:
    """Stop the process and return its result; {} if it writes none within C(seconds), or if its folder is gone."""
    deadline = time.monotonic() + seconds
    try:
        os.unlink(os.path.join(folder, ALIVE))
        while time.monotonic() < deadline:
            if os.path.exists(os.path.join(folder, RESULT)):
                with open(os.path.join(folder, RESULT), encoding="utf-8") as file:
                    result: Dict[str, Any] = json.load(file)
                return result
            time.sleep(0.1)
    except FileNotFoundError:
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {}
