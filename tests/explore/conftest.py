# SPDX-License-Identifier: Apache-2.0
"""Runs the explorer's tests with the order of sets that PYTHONHASHSEED=0 gives, as `make unit` and `make explore` do.

With another seed, the runtime sends some requests in another order, so a recorded sequence hits other requests.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the test in a separate process if sets have a random order here."""
    if os.environ.get("PYTHONHASHSEED") == "0":
        return None
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return True
