# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of file formats: programs that decide what a file means, compiled into the bed's cache."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from bed import go_programs
from bed.progress import Progress

from ..plugins.conftest import cluster_facts, fixture_text, host_facts

__all__ = ["cluster_facts", "fixture_text", "host_facts"]


class Refused(ValueError):
    """Kubernetes does not read the text; the message is Kubernetes' own."""


class Kubernetes:
    """Kubernetes' parser of YAML, in a separate process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def load(self, text: str) -> Any:
        """Return the text's data. Raises Refused."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["error"]:
            raise Refused(answer["error"])
        return answer["data"]


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    program = go_programs.ensure("kubernetes-yaml", Progress())
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Kubernetes(process)
        assert process.stdin
        process.stdin.close()
        assert process.wait(60) == 0
