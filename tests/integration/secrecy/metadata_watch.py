# SPDX-License-Identifier: Apache-2.0
"""Records each connection of a process to a cloud's instance metadata service.

Python runs it as `sitecustomize` at the start of each process whose PYTHONPATH has its folder. SOURCE is a text,
because such a process imports nothing from the tests.
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
