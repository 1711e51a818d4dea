# SPDX-License-Identifier: Apache-2.0
"""Records what a command prints on a terminal, in asciinema's format (asciicast v2).

    python tools/docs/recording.py CAST COMMAND...

The format has one JSON document a line: a header, then `[SECONDS, "o", TEXT]` for each piece of output.
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The size of the terminal, in characters and lines. It is as wide as the tables of the demo, so that no line is
#: wrapped.
COLUMNS, ROWS = 200, 50


@dataclass(frozen=True)
class Line:
    """One line as it was when the cursor left it. `at`: seconds since the start of the recording."""

    at: float
    text: str


def anywhere(text: str) -> str:
    """Replace this machine's paths in output: the checkout becomes `.`, the home folder `~`."""
    return text.replace(f"{ROOT}/", "./").replace(f"{Path.home()}/", "~/")


def record(cast: Path, command: list[str]) -> int:
    """Run a command on a terminal of its own, and show its output, too. Write the file only if the command succeeds.
    Return the command's exit status."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    began = time.monotonic()
    typed = shlex.join(command)
    shown = anywhere(typed)
    # A player shows the command at the prompt from its first frame on.
    events = [json.dumps([0.0, "o", f"$ {shown}\r\n"], ensure_ascii=False)]

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 65536)
        if text := anywhere(decode(data)):
            events.append(json.dumps([round(time.monotonic() - began, 3), "o", text], ensure_ascii=False))
        return data

    status = pty.spawn(["sh", "-c", f"stty cols {COLUMNS} rows {ROWS}; exec {typed}"], read)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        header = {"version": 2, "width": COLUMNS, "height": ROWS, "command": shown, "env": {"TERM": "xterm-256color"}}
        cast.write_text("\n".join([json.dumps(header), *events]) + "\n")
    return code


def lines(cast: Path) -> Iterator[Line]:
    """Yield the lines of a recording. For a line that was redrawn, yield only its last state."""
    rest = ""
    for event in cast.read_text().splitlines()[1:]:
        at, kind, text = json.loads(event)
        if kind != "o":
            continue
        *complete, rest = (rest + text).replace("\r\n", "\n").split("\n")
        yield from (Line(at, line.rpartition("\r")[2].removeprefix("\x1b[K")) for line in complete)
    if rest:
        yield Line(at, rest.rpartition("\r")[2])


if __name__ == "__main__":
    sys.exit(record(Path(sys.argv[1]), sys.argv[2:]))
