# SPDX-License-Identifier: Apache-2.0
"""The locks of the image (`make lock`), for its packages and for the packages that build its wheel: they are complete,
agree with pyproject.toml, and are the same for everybody."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tools.packaging.locks import EXTRAS, RUNTIME

Pins = dict[str, tuple[Version, list[str]]]
PROJECT = tomllib.loads((RUNTIME / "pyproject.toml").read_text())


def pins(text: str) -> Pins:
    """Return name -> (version, hashes), for all platforms."""
    packages = re.finditer(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^ ;\\]+)(?P<rest>.*(?:\n .*)*)", text, re.MULTILINE)
    return {
        match["name"]: (Version(match["version"]), re.findall(r"--hash=sha256:([0-9a-f]{64})", match["rest"]))
        for match in packages
    }


@pytest.mark.parametrize(
    ("lock", "asked"),
    [
        (
            "requirements.lock",
            [
                *PROJECT["project"]["dependencies"],
                *(each for name in EXTRAS for each in PROJECT["project"]["optional-dependencies"][name]),
            ],
        ),
        ("build.lock", PROJECT["build-system"]["requires"]),
    ],
)
def test_it_has_what_the_runtime_asks_for(lock: str, asked: list[str]):
    pinned = pins((RUNTIME / lock).read_text())
    assert asked
    for each in map(Requirement, asked):
        version, _ = pinned[each.name.lower()]
        assert version in each.specifier, f"{each} is locked at {version}: make lock"


@pytest.mark.parametrize("lock", ["requirements.lock", "build.lock"])
def test_every_package_has_hashes_and_none_an_address(lock: str):
    text = (RUNTIME / lock).read_text()
    pinned = pins(text)
    assert len(pinned) == text.count("==") > 5
    assert not [name for name, (_, hashes) in pinned.items() if not hashes]
    assert not re.search(r"://|--index|--find-links|--trusted", text), "the lock names no host"


def test_the_image_is_built_from_them():
    built = (RUNTIME / "Containerfile").read_text()
    assert f'if [ "$EXTRAS" = {",".join(EXTRAS)} ]; then cp requirements.lock requirements.txt' in built
    # Nothing else may come from an index, above all not the build backend, whose newest release pip would take.
    installs = re.findall(r"pip --python \S+ install (.*?)(?: *\\)?$", built, re.MULTILINE)
    assert installs == [
        "--requirement requirements.txt",
        "--require-hashes --requirement build.lock",
        "--no-deps --no-index /opt/wheel/*.whl",
    ]
