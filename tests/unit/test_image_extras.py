# SPDX-License-Identifier: Apache-2.0
"""The Containerfile of the runtime installs what its argument EXTRAS names. The default image has neither libcloud
nor OpenTelemetry."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[2] / "runtime"


def requirements(extras: str) -> str:
    """Return what the program in the Containerfile prints."""
    text = (RUNTIME / "Containerfile").read_text().replace("\\\n", "\n")
    (program,) = re.findall(r"python3 -c '(.*?)'", text, re.S)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=RUNTIME, env={"EXTRAS": extras}, capture_output=True, text=True, check=True
    )
    return done.stdout


def default() -> str:
    return re.findall(r"^ARG EXTRAS=(\S+)$", (RUNTIME / "Containerfile").read_text(), re.M)[0]


def test_the_default_image() -> None:
    found = requirements(default())
    assert "aiohttp" in found and "openstacksdk" in found and "pyvmomi" in found
    assert "libcloud" not in found and "opentelemetry" not in found


def test_the_image_that_the_page_builds() -> None:
    page = (RUNTIME.parent / "docs/providers/libcloud.md").read_text()
    (extras,) = re.findall(r"--build-arg EXTRAS=(\S+)", page)
    found = requirements(extras)
    assert "apache-libcloud" in found and "aiohttp" in found
    assert "openstacksdk" not in found


def test_the_image_that_exports_traces() -> None:
    page = (RUNTIME.parent / "docs/how-to/monitoring.md").read_text()
    (extras,) = re.findall(r"--build-arg EXTRAS=(\S+)", page)
    assert set(extras.split(",")) == {*default().split(","), "otel"}
    missing = set(requirements(extras).split()) - set(requirements(default()).split())
    assert {re.split("[<>=]", each)[0] for each in missing} == {
        "opentelemetry-exporter-otlp-proto-http",
        "opentelemetry-sdk",
    }


def test_an_unknown_extra_ends_the_build() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        requirements("no-such-extra")


def test_docker_builds_the_image_by_the_name_of_its_file() -> None:
    """By default, Docker looks for a Dockerfile. It reads only .dockerignore; podman also reads .containerignore."""
    page = (RUNTIME.parent / "docs/how-to/migrate.md").read_text()
    (file,) = re.findall(r"`docker build --file (\S+?)`", page)
    assert (RUNTIME.parent / file).parent == RUNTIME and (RUNTIME.parent / file).is_file()
    assert "\n*\n" in (RUNTIME / ".dockerignore").read_text() and not (RUNTIME / ".containerignore").exists()
