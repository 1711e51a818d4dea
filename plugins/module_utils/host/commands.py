# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs programs of a managed host, only by trusted absolute paths, with a fixed environment and a time limit.

It uses only the standard library of Python 3.8, because it runs on managed nodes. No other code in the modules that run there runs a program.
"""

from __future__ import annotations

import os
import subprocess
from typing import List

from ansible_collections.outoftree.ccm.plugins.module_utils.host import files

#: The environment of a program. The caller's environment could name other programs, libraries or sockets.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root"}


def run(argv: List[str], timeout: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run a command without a shell. The return code is 127 if it is not installed, 126 if it cannot be run
    or a user other than root may change it, and 124 if it takes too long.

    C(argv[0]) is an absolute path, or a name to look up in C(files.PROGRAMS).
    """
    try:
        path = files.program(argv[0]) if os.path.isabs(argv[0]) else files.find_program(argv[0])
    except files.Untrusted as exc:
        return subprocess.CompletedProcess(argv, 126, "", "{0} is not run: {1}".format(argv[0], exc.strerror))
    except OSError:
        return subprocess.CompletedProcess(argv, 127, "", "{0} is not installed".format(argv[0]))
    try:
        # AnsibleModule.run_command has no time limit: a systemctl that hangs would hang the run.
        # pylint: disable-next=ansible-bad-function
        return subprocess.run([path] + argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, errors="replace", timeout=timeout, check=False, cwd="/", env=ENVIRONMENT)
    except OSError as exc:
        return subprocess.CompletedProcess(argv, 126, "", "{0} cannot be run: {1}".format(argv[0], exc.strerror))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", "{0} did not end within {1} s".format(argv[0], timeout))
