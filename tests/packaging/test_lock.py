# SPDX-License-Identifier: Apache-2.0
"""runtime/requirements.lock, from which the image is built (`make lock`): whole, in agreement with pyproject.toml, and
the same for everybody."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

from .environments import REPOSITORY

RUNTIME = REPOSITORY / "runtime"
EXTRAS = re.search(r"^ARG EXTRAS=(\S+)$", (RUNTIME / "Containerfile").read_text(), re.MULTILINE)[1].split(",")
#: Name -> (version, hashes), of every platform.
PINS = {
    match["name"]: (Version(match["version"]), re.findall(r"--hash=sha256:([0-9a-f]{64})", match["rest"]))
    for match in re.finditer(
        r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ;\\]+)(?P<rest>.*(?:\n .*)*)",
        (RUNTIME / "requirements.lock").read_text(),
        re.MULTILINE,
    )
}


def test_it_has_what_the_runtime_asks_for():
    project = tomllib.loads((RUNTIME / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    assert len(asked) > 5
    for each in map(Requirement, asked):
        version, _ = PINS[each.name.lower()]
        assert version in each.specifier, f"{each} is locked at {version}: make lock"


def test_every_package_has_hashes_and_none_an_address():
    text = (RUNTIME / "requirements.lock").read_text()
    assert len(PINS) == text.count("==") and len(PINS) > 20
    assert not [name for name, (_, hashes) in PINS.items() if not hashes]
    assert not re.search(r"://|--index|--find-links|--trusted", text), "the lock names no host"


def test_the_image_is_built_from_it():
    built = (RUNTIME / "Containerfile").read_text()
    assert f'if [ "$EXTRAS" = {",".join(EXTRAS)} ]; then cp requirements.lock requirements.txt' in built
