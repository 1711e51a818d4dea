# SPDX-License-Identifier: Apache-2.0
"""Fixtures of a user: an empty home folder, the README's two packages, and the collection from its tarball."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.packaging import artifact, environments


@dataclass(frozen=True)
class User:
    home: Path
    environment: Path
    collections: Path

    def run(
        self, program: str, *arguments: str, seconds: float = 500, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of Ansible in the home folder. Ansible has its default settings, except for `variables`."""
        return subprocess.run(
            [self.environment / "bin" / program, *arguments],
            cwd=self.home,
            env=environments.variables(self.environment) | variables | {"HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    home = tmp_path_factory.mktemp("home")
    environment = environments.of_a_user()
    return User(home, environment, artifact.install(home, environment))
