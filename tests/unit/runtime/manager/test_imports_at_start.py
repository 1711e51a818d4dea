# SPDX-License-Identifier: Apache-2.0
"""What a process imports before its first request leaves: each of these takes 10 to 100 ms, and some never need it."""

import subprocess
import sys

LATER = ("aiohttp.web", "cryptography", "google.protobuf", "yaml", "botocore", "openstack", "pyVmomi", "jinja2")
START = """
import sys
import ccm.manager.logs, ccm.manager.process
from ccm.options import command_line
command_line.parse(["--cloud-provider=static"], command_line.parser())
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_what_is_not_needed_yet_is_imported_later():
    done = subprocess.run([sys.executable, "-c", START, *LATER], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
