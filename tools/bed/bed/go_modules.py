# SPDX-License-Identifier: Apache-2.0
"""Gets released Go modules, as source, from the module proxy or from Go's cache."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bed import golang
from bed.errors import BedError
from bed.progress import Progress


def download(modules: Iterable[tuple[str, str]], progress: Progress) -> dict[tuple[str, str], Path]:
    """Return the folders of modules in Go's cache. Raises BedError if there is no such version, or no proxy answers."""
    wanted = sorted(set(modules))
    named = [f"{name}@{version}" for name, version in wanted]
    command = [str(golang.ensure(progress)), "mod", "download", "-json", *named]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=600, check=False)
    answers = _documents(done.stdout)
    if refused := [answer for answer in answers if "Error" in answer]:
        problems = (f"{answer['Path']}@{answer['Version']}: {answer['Error']}" for answer in refused)
        raise BedError("Go cannot get " + "\n".join(problems))
    if len(answers) != len(wanted):
        raise BedError(f"Go cannot get {len(wanted) - len(answers)} of {len(wanted)} modules: {done.stderr.strip()}")
    return {(answer["Path"], answer["Version"]): Path(answer["Dir"]) for answer in answers}


def _documents(text: str) -> list[dict[str, Any]]:
    """Return the JSON documents that follow one another in a text."""
    decoder, documents, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        document, end = decoder.raw_decode(text, at)
        documents.append(document)
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return documents
