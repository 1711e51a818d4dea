# SPDX-License-Identifier: Apache-2.0
"""Generates the tables of docs/how-to/another-controller.md about the vendors that ccm_runtime knows by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/another-controller.md"
VENDORS = ROOT / "roles/ccm_runtime/files/vendors"
FACTS = ROOT / "tests/unit/vendor_facts.yml"
MARKS = {
    "vendors": "<!-- vendors: written by `make docs` from roles/ccm_runtime/files/vendors -->\n",
    "differs": "<!-- vendors that differ: written by `make docs` from tests/unit/vendor_facts.yml -->\n",
}

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]


def filled(text: str, table: Table) -> str:
    """Return the page with its current tables. Raises ValueError if a mark is missing in it."""
    files = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(VENDORS.glob("*.yml"))}
    facts = yaml.safe_load(FACTS.read_text())
    columns = ("`ccm_runtime_vendor`", "Controller, and the manifest it was compared with", "Image", "Set")
    tables = {
        "vendors": table(columns, [_vendor(name, file, facts[name]) for name, file in files.items()]),
        "differs": table(
            ("Vendor", "What differs from its manifest", "Because"),
            [
                (f"`{name}`", _what(what), f"{why[0].upper()}{why[1:]}.")
                for name in files
                for what, why in facts[name].get("differs", {}).items()
            ],
        ),
    }
    for name, mark in MARKS.items():
        if mark not in text:
            raise ValueError(f"{PAGE}: there is no place for a table: a line {mark!r}")
        made = f"{mark}\n{tables[name]}\n"
        text = re.sub(re.escape(mark) + r"\n(\|.*\n)*\n?", made.replace("\\", r"\\"), text)
    return text


def _vendor(name: str, file: dict[str, Any], facts: dict[str, Any]) -> tuple[str, ...]:
    link = f"https://github.com/{facts['repository']}"
    keys = [
        f"`{key}`" if about.get("required") else f"`{key}` if used"
        for key, about in file.get("credentials", {}).items()
    ]
    needs = []
    if file["config"] != "none":
        needs.append("`ccm_runtime_cloud_config`" + (" if used" if file["config"] == "optional" else ""))
    if keys:
        needs.append(f"`ccm_runtime_credentials`: {', '.join(keys)}")
    manifest = ", ".join(f"`{path}`" for path in facts["manifest"].split(", "))
    return f"`{name}`", f"[{file['title']}]({link}) {facts['version']}, {manifest}", _image(file), "; ".join(needs)


def _image(file: dict[str, Any]) -> str:
    """Return a cell with the image's repository, the newest version, and the minors of Kubernetes for which there are
    images.
    """
    if "image" in file:
        repository, _, tag = file["image"].rpartition(":")
        return f"`{repository}` {tag}, for every Kubernetes"
    minors = list(file["images"])
    repository, _, tag = file["images"][minors[-1]].rpartition(":")
    return f"`{repository}`, up to {tag}, for Kubernetes {', '.join(_spans([int(minor[2:]) for minor in minors]))}"


def _spans(minors: list[int]) -> list[str]:
    """Join neighbours: [29, 30, 32] becomes ["1.29 to 1.30", "1.32"]."""
    spans: list[list[int]] = []
    for minor in minors:
        if spans and spans[-1][1] == minor - 1:
            spans[-1][1] = minor
        else:
            spans.append([minor, minor])
    return [f"1.{first}" if first == last else f"1.{first} to 1.{last}" for first, last in spans]


def _what(what: str) -> str:
    kind, _, thing = what.partition(" ")
    words = {"arg": "argument", "mount": "mount", "right": "right to", "image": "image", "command": "command"}
    return f"{words[kind]} `{thing}`" if thing else words[kind]
