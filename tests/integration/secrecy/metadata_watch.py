# SPDX-License-Identifier: Apache-2.0
"""Notes each connection of a process to a cloud's service for instance metadata. Python runs it at the start of a
process that has its folder, under the name `sitecustomize`, in PYTHONPATH.

SOURCE is a text, because the process imports nothing of the tests.
"""

from __future__ import annotations

SOURCE = """
import os, sys

def _watch(event, arguments):
    if event == "socket.connect":
        address = arguments[1]
        host = str(address[0]) if isinstance(address, tuple) else ""
        if host.startswith("169.254.") or host.lower().startswith("fd00:ec2") or host == "metadata.google.internal":
            with open(os.environ["METADATA_WATCH"], "a") as file:
                file.write(host + "\\n")

sys.addaudithook(_watch)
"""
