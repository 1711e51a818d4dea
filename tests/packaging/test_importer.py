# SPDX-License-Identifier: Apache-2.0
"""Runs Galaxy's own checks of a tarball with Galaxy's own program."""

from __future__ import annotations

import subprocess

import pytest

from tools.packaging import environments

from .conftest import User

# The test takes two and a half minutes, most of it for ansible-lint, which `make lint` runs as well.
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_galaxy_would_take_the_tarball(user: User):
    (made,) = user.home.glob("outoftree-ccm-*.tar.gz")
    importer = environments.of_galaxy()
    run = subprocess.run(
        [importer / "bin" / "python", environments.IMPORTER, str(made)],
        cwd=user.home,
        env=environments.variables(importer) | {"HOME": str(user.home)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    said = run.stdout + run.stderr
    assert run.returncode == 0 and "Importer processing completed successfully" in said, said
    assert "WARNING" not in said and "ERROR" not in said, said
