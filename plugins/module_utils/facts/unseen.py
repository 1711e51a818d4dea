# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host could not be inspected, in the words of the program that failed there, and what to do.

Ansible's own message is often about its protocol (C(No start of json char found)) or quotes its shell command. The reason is then in what
the host wrote. Pure and stdlib-only.
"""

from __future__ import annotations

import re
from typing import List, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostAnswer

#: Maximum number of characters of a reason.
LONGEST = 300

#: Messages of Ansible that say nothing about the host. Then the reason comes from what the host wrote.
_EMPTY = re.compile(r"^(task failed: |task failed\.?$|action failed: )*(module result deserialization failed|module failure|the module failed to "
                    r"execute correctly|failed to create temporary directory|premature end of stream|incorrect sudo password)|"
                    r"no start of json char found", re.IGNORECASE)

#: Patterns of what programs write, and the reason to report. The first match counts; its groups are inserted into the reason.
_KNOWN: List[Tuple[str, str]] = [
    (r"module interpreter '([^']+)' was not found", "it has no Python at {0}. {PYTHON}"),
    (r"([^\s:'\"]*python[\d.]*): (?:command )?not found", "it has no Python at {0}. {PYTHON}"),
    (r"([^\s:'\"]*python[\d.]*): (?:No such file or directory)", "it has no Python at {0}. {PYTHON}"),
    (r"no (?:usable )?python (?:interpreters? )?(?:was |were )?found", "it has no Python. {PYTHON}"),
    (r"future feature annotations is not defined|zip_data: str,|requires a minimum of Python",
     "its Python is too old. {PYTHON}"),
    (r"msg=f\"ansible-core|SyntaxError: invalid syntax", "its Python is too old. {PYTHON}"),
    (r"([^\s:'\"]*(?:sudo|doas|pkexec|dzdo|pbrun|pfexec)): (?:command )?not found",
     "it has no {0}, and ansible_become asks for it. Install it, log in as root, or set ansible_become_method"),
    (r"a password is required|a terminal is required|[Mm]issing (?:sudo|become) password|no password was provided",
     "sudo needs a password. Run with --ask-become-pass, or allow the user to use sudo without one"),
    (r"[Ii]ncorrect (?:sudo|become) password|[Ss]orry, try again", "the password for sudo is wrong. Run with --ask-become-pass"),
    (r"(\S+) is not in the sudoers file", "{0} may not use sudo there. Add the user to sudoers, or log in as another user"),
    (r"[Ss]orry, user (\S+) (?:is not allowed|may not run)[^\n]*", "{0} may not use sudo there. Add the user to sudoers, or log in as another user"),
    (r"/bin/sh: (?:\d+: |line \d+: )?(\S+): (Permission denied|cannot execute[^\n]*|Exec format error|not found|No such file or directory)",
     "{0}: {1}. Check ansible_python_interpreter and ansible_become_exe"),
    (r"ssh: ((?:connect to host|Could not resolve hostname) [^\n]+)", "{0}"),
    (r"((?:[^\s:]+: )?Permission denied \([^)]*\))", "{0}: the host does not accept the SSH key. Check ansible_user and the key"),
    (r"(Host key verification failed)", "{0}: its key is not in known_hosts, or has changed"),
    (r"mkdir: (cannot create directory [^\n]+)", "Ansible has no place for its temporary files: {0}. Set ansible_remote_tmp"),
    (r"No space left on device", "its file system is full: No space left on device. Free some space"),
]
_PYTHON = "Install Python 3.8 or newer, or set ansible_python_interpreter"


def is_ansibles(answer: HostAnswer) -> bool:
    """Return whether a failed result is about the connection or Ansible's own files on the host, and is not a message of the module."""
    return bool(answer.get("unreachable")) or bool(_EMPTY.search(" ".join(str(answer.get("msg") or "").split())))


def reason(answer: HostAnswer) -> str:
    """Return why a host could not be inspected. C(answer): the failed result, with C(msg), C(module_stderr), C(stderr) and C(rc)."""
    message = " ".join(str(answer.get("msg") or "").split())
    wrote = [str(answer.get(key) or "") for key in ("module_stderr", "stderr")]
    for text in [*wrote, str(answer.get("msg") or "")]:
        for pattern, words in _KNOWN:
            match = re.search(pattern, text)
            if match:
                return _cut(words.replace("{PYTHON}", _PYTHON).format(*match.groups()))
    if message and not _EMPTY.search(message):
        return _cut(re.sub(r"^(?:Task failed: |Action failed: )+", "", message))
    lines = [line.strip() for text in wrote for line in text.splitlines() if line.strip()]
    result = re.search(r"exited with result (-?\d+)", message)
    status = answer.get("rc") if answer.get("rc") is not None else result.group(1) if result else None
    if lines:
        return _cut("its Python or its shell ended with: " + lines[-1])
    if status is not None:
        return ("what runs there as Python ended with exit status {0} and wrote no result. Check ansible_python_interpreter, and run 'ansible "
                "-m ping' on the host".format(status))
    return _cut(message) or "no message"


def _cut(text: str) -> str:
    return " ".join(text.split())[:LONGEST].rstrip(". ")
