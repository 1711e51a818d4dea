# SPDX-License-Identifier: Apache-2.0
"""The reason why a host cannot be inspected, from the results of ansible-core 2.18, 2.19 and 2.21 for such hosts."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import unseen

NO_JSON = "Module result deserialization failed: No start of json char found"
OLD = "MODULE FAILURE: No start of json char found\nSee stdout/stderr for the exact error"
TEMPORARY = (
    "Failed to create temporary directory. In some cases, you may have been able to authenticate and did not have permissions on the target "
    "directory. Consider changing the remote tmp path in ansible.cfg to a path rooted in \"/tmp\", for more error information use -vvv. Failed "
    "command was: ( umask 77 && mkdir -p \"` echo ~/.ansible/tmp `\"&& mkdir \"` echo ~/.ansible/tmp/ansible-tmp-1 `\" ), exited with result 1")


def shell(text: str, rc: int = 127, msg: str = NO_JSON, out: str = "") -> dict[str, Any]:
    return {"msg": msg, "module_stderr": text, "module_stdout": out, "rc": rc}


@pytest.mark.parametrize(("answer", "words"), [
    pytest.param(shell("/bin/sh: 1: /usr/bin/python3: not found\n"), "it has no Python at /usr/bin/python3", id="no-python"),
    pytest.param(shell("/bin/sh: 1: /usr/bin/python3: not found\n", msg=OLD), "it has no Python at /usr/bin/python3", id="no-python-2.18"),
    pytest.param(shell("bash: line 1: python3.12: command not found\n"), "it has no Python at python3.12", id="no-python-bash"),
    pytest.param({"msg": "The module interpreter '/opt/python3' was not found.", "rc": 127}, "it has no Python at /opt/python3", id="no-python-2.21"),
    pytest.param(shell("/bin/sh: /usr/bin/python3: No such file or directory"), "it has no Python at /usr/bin/python3", id="no-file"),
    pytest.param(shell('  File "<stdin>", line 3\nSyntaxError: future feature annotations is not defined\n', 1), "its Python is too old", id="3.6"),
    pytest.param(shell('  File "<stdin>", line 40\n    zip_data: str,\n            ^\nSyntaxError: invalid syntax\n', 1), "its Python is too old", id="2.7"),
    pytest.param(shell("", 1), "ended with exit status 1 and wrote no result. Check ansible_python_interpreter", id="false"),
    pytest.param(shell("", 0, out="#!/bin/cat\nfrom __future__"), "ended with exit status 0 and wrote no result", id="cat"),
    pytest.param(shell("/bin/sh: 1: /etc/passwd: Permission denied\n", 126), "/etc/passwd: Permission denied", id="no-program"),
    pytest.param(shell("/bin/sh: 1: sudo: not found\n"), "it has no sudo, and ansible_become", id="no-sudo"),
    pytest.param(shell("sudo: a password is required\n", 1, OLD), "sudo needs a password", id="password"),
    pytest.param({"msg": "Task failed: Premature end of stream waiting for become success.\n>>> Standard Error\nsudo: a password is required"},
                 "sudo needs a password", id="password-2.21"),
    pytest.param({"msg": "Missing sudo password"}, "sudo needs a password", id="missing"),
    pytest.param({"msg": "Incorrect sudo password"}, "the password for sudo is wrong", id="wrong"),
    pytest.param(shell("bob is not in the sudoers file.\n", 1), "bob may not use sudo there", id="sudoers"),
    pytest.param(shell("Sorry, user bob is not allowed to execute '/bin/sh -c' as root on w-1.\n", 1), "bob may not use sudo there", id="not-allowed"),
    pytest.param({"unreachable": True, "msg": "Task failed: Failed to connect to the host via ssh: ssh: connect to host 10.0.0.5 port 22: No route to host"},
                 "connect to host 10.0.0.5 port 22: No route to host", id="route"),
    pytest.param({"unreachable": True, "msg": "Failed to connect to the host via ssh: ssh: Could not resolve hostname w-1: Name or service not known"},
                 "Could not resolve hostname w-1", id="name"),
    pytest.param({"unreachable": True, "msg": "Failed to connect to the host via ssh: root@w-1: Permission denied (publickey,password)."},
                 "root@w-1: Permission denied (publickey,password): the host does not accept", id="key"),
    pytest.param({"unreachable": True, "msg": "Failed to connect to the host via ssh: Host key verification failed."}, "known_hosts", id="host-key"),
    pytest.param({"msg": TEMPORARY + ", stderr output: mkdir: cannot create directory '/home/x': Read-only file system"},
                 "no place for its temporary files: cannot create directory '/home/x': Read-only file system", id="tmp"),
    pytest.param({"msg": TEMPORARY}, "exit status 1", id="half-of-a-command"),
    pytest.param(shell("Traceback:\n  File x\nMemoryError\n", 1), "ended with: MemoryError", id="last-line"),
    pytest.param({"msg": "its own words"}, "its own words", id="own"),
    pytest.param({}, "no message", id="nothing"),
])
def test_the_reason(answer: dict[str, Any], words: str) -> None:
    found = unseen.reason(answer)
    assert words in found and len(found) <= 300, found
    assert "json" not in found and "umask" not in found and not found.endswith(".")
