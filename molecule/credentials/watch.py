# SPDX-License-Identifier: Apache-2.0
"""Find secrets that processes show: watch.py forms FILE | watch.py ps FORMS RESULT COMMAND ...

`forms` reads a secret from standard input and adds it to FILE, together with its base64 at each of the three possible
offsets. `ps` runs a command, looks ten times a second at the arguments and environment of every process (those in
containers are processes of this machine, too), and writes the names of those that show a secret to RESULT.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from pathlib import Path


def forms(secret: bytes) -> list[bytes]:
    """Return the secret, and the parts of its base64 that do not depend on the text before and after it."""
    found = [secret]
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + secret)
        found.append(text[4 if offset else 0 : len(text) - 4])
    return found


def look(patterns: list[bytes]) -> set[str]:
    seen = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            said = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        except OSError:
            continue
        if any(pattern in said for pattern in patterns):
            seen.add(said.split(b"\0")[0].decode(errors="replace"))
    return seen


def watch(patterns: list[bytes], result: Path, command: list[str]) -> int:
    seen: set[str] = set()
    looks = 0
    run = subprocess.Popen(command)
    while run.poll() is None:
        seen |= look(patterns)
        looks += 1
        time.sleep(0.1)
    result.write_text("".join(f"{name}\n" for name in sorted(seen)))
    print(f"looked {looks} times at every process")
    return run.returncode


if __name__ == "__main__":
    verb, place, *rest = sys.argv[1:]
    if verb == "forms":
        with Path(place).open("ab") as handle:
            handle.writelines(form + b"\n" for form in forms(sys.stdin.buffer.read().strip()))
    else:
        sys.exit(watch(Path(place).read_bytes().split(), Path(rest[0]), rest[1:]))
