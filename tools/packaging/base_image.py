# SPDX-License-Identifier: Apache-2.0
"""Pins and checks the base of the released image by its digest. Nobody writes a digest into a file by hand:

    python -m tools.packaging.base_image pin TAG         print TAG@DIGEST, with the digest that the tag has now
    python -m tools.packaging.base_image compare IMAGE   fail if the base of a released image has a newer build

A release is built from TAG@DIGEST, and its image has both in its labels (release.py). A workflow compares every week.
skopeo asks the registries.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

_LABEL = "org.opencontainers.image.base"


class Failed(Exception):
    """An image or a reference is wrong or outdated; the message says what to do."""


def split(reference: str) -> tuple[str, str]:
    """Return the name with its tag, and the digest or "". Raises Failed for an invalid digest."""
    name, _, digest = reference.partition("@")
    if digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise Failed(f"{reference}: the digest must be `sha256:` followed by 64 hexadecimal digits")
    return name, digest


def pullable(reference: str) -> str:
    """Return the reference without its tag if it has a digest: not every builder accepts both."""
    name, digest = split(reference)
    return f"{re.sub(r':[^:/]+$', '', name)}@{digest}" if digest else reference


def labels(reference: str) -> dict[str, str]:
    """Return the labels about an image's base, named like OCI's annotations; {} without a digest."""
    name, digest = split(reference)
    return {"base.name": name, "base.digest": digest} if digest else {}


def inspected(reference: str) -> dict[str, Any]:
    command = ["skopeo", "inspect", "--no-tags", f"docker://{reference}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{reference}: {error}") from error
    if done.returncode:
        raise Failed(f"{reference}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def pin(tag: str) -> str:
    reference = f"{tag}@{inspected(tag)['Digest']}"
    split(reference)
    return reference


def compare(image: str) -> str:
    """Return a sentence if the base is current. Raises Failed if it has a newer build, or if the image has no
    labels."""
    found = inspected(image).get("Labels") or {}
    name, digest = found.get(f"{_LABEL}.name", ""), found.get(f"{_LABEL}.digest", "")
    if not (name and digest):
        raise Failed(f"{image} does not say what it is built on: it has no labels {_LABEL}.name and {_LABEL}.digest")
    if (newest := inspected(name)["Digest"]) != digest:
        raise Failed(f"{image} is built on {name} {digest}, and that tag is {newest} now: release a patch version")
    return f"{image} is built on the newest build of {name}"


def main(arguments: list[str]) -> int:
    actions = {"pin": pin, "compare": compare}
    if len(arguments) != 2 or arguments[0] not in actions:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(actions[arguments[0]](arguments[1]))
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
