# SPDX-License-Identifier: Apache-2.0
"""Work that must not delay the first request of a process: each item takes 10 to 100 ms and is often not needed."""

import os
import subprocess
import sys

import pytest

from tests.integration.cluster import Authority

LATER = ("aiohttp.web", "cryptography", "google.protobuf", "yaml", "botocore", "openstack", "pyVmomi", "jinja2")
#: `--version` exits after the imports that a first request needs.
START = """
import contextlib, sys
from importlib import metadata
scans, look = [], metadata.distributions
metadata.distributions = lambda **named: scans.append(1) or look(**named)
from ccm.cli import main
with contextlib.suppress(SystemExit):
    main(["--version"])
"""
IMPORTED = "print(*(name for name in sys.argv[1:] if name in sys.modules))"
TRUSTED = "from aiohttp import connector; print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509_ca'])"
SCANS = """
from ccm.cloud import registry
from ccm.controllers import controller_registry
from ccm.options import command_line
command_line.parse(["--cloud-provider=static"], command_line.parser())
registry.load("static"), controller_registry.installed()
print(len(scans))
"""


def printed(program, *arguments, **environment):
    """Run the program and return the words of the last line that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout.splitlines()[-1].split()


def test_what_is_not_needed_yet_is_imported_later():
    assert printed(START + IMPORTED, *LATER) == []


def test_installed_packages_are_looked_through_once():
    assert printed(START + SCANS) == ["1"]


@pytest.mark.parametrize(("first", "trusted"), [("", "0"), ("import aiohttp", "1")])
def test_the_systems_authorities_are_read_by_who_needs_them(tmp_path, first, trusted):
    """Nothing reads the system's authorities before the first request. The second case checks the measurement:
    importing aiohttp reads them.
    """
    system = {"SSL_CERT_FILE": str(Authority(tmp_path).file), "SSL_CERT_DIR": str(tmp_path / "none")}
    assert printed(first + START + TRUSTED, **system) == [trusted]
