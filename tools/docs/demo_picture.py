# SPDX-License-Identifier: Apache-2.0
"""`make demo-picture`: docs/images/demo.svg, the animated output of a real `make demo`.

    python tools/docs/demo_picture.py [--record]

Draws docs/images/demo.cast, which --record writes from a run. The picture is scrolling text without scripts. It is
light or dark like the reader's system, and does not move for readers who asked for less motion.
"""

from __future__ import annotations

import argparse
import html
import subprocess
import sys
from pathlib import Path

import recording
from rich.ansi import AnsiDecoder
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
CAST = ROOT / "docs/images/demo.cast"
PICTURE = ROOT / "docs/images/demo.svg"

#: The visible part of the terminal, in characters and lines.
COLUMNS, ROWS = 110, 30
#: The size of a character and the space around the text, in pixels.
WIDTH, HEIGHT, MARGIN, FONT = 8.5, 19, 16, 14
#: FASTER: the factor by which the picture is faster than the recording. SHORTEST and LONGEST: seconds between two
#: lines. END: seconds for which the last lines stay visible.
FASTER, SHORTEST, LONGEST, END = 16, 0.02, 0.9, 8
#: Lines within this many seconds appear together.
TOGETHER = 0.12
#: How many times the animation runs before it stops at its end.
TIMES = 3
#: Number of a terminal's colour -> the CSS class for it in the picture.
COLOURS = {1: "r", 2: "g", 3: "y", 4: "b", 5: "m", 6: "c", 8: "d", 9: "r", 10: "g", 11: "y", 12: "b", 13: "m", 14: "c"}

ABOUT = (
    "The command creates a cluster of three Nodes without cloud integration, migrates it with the playbook site.yml, "
    "deploys an app behind a load balancer, and lists the Nodes, which now have a provider ID, a zone and a type."
)
STYLE = """
    .page { fill: #f6f8fa; stroke: #d0d7de; } .cover { fill: #f6f8fa; } text { fill: #1f2328; }
    .g { fill: #116329; } .y { fill: #7d4e00; } .r { fill: #a40e26; } .c { fill: #0b6472; } .b { fill: #0550ae; }
    .m { fill: #8250df; } .d { fill: #57606a; } .s { font-weight: 700; }
    text { font: %(font)spx ui-monospace, "DejaVu Sans Mono", "Liberation Mono", Menlo, Consolas, monospace; }
    text { white-space: pre; }
    #lines { transform: translateY(%(last)spx); } .cover { visibility: hidden; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; stroke: #30363d; } .cover { fill: #0d1117; } text { fill: #e6edf3; }
      .g { fill: #56d364; } .y { fill: #e3b341; } .r { fill: #ff7b72; } .c { fill: #56d4dd; } .b { fill: #79c0ff; }
      .m { fill: #d2a8ff; } .d { fill: #9da7b3; }
    }
    @media (prefers-reduced-motion: no-preference) {
      #lines { animation: scroll %(seconds)ss step-end %(times)s forwards; }
      .cover { visibility: visible; animation: uncover %(seconds)ss step-end %(times)s forwards; }
    }"""


def frames(lines: list[recording.Line]) -> tuple[list[tuple[float, int]], float]:
    """Return (seconds of the animation, number of lines shown from then on) for each step, and the animation's
    length."""
    found: list[tuple[float, int]] = [(0.0, 1)]
    now, last = 0.0, lines[0].at
    for number, line in enumerate(lines[1:], start=2):
        now += min(max((line.at - last) / FASTER, SHORTEST), LONGEST)
        last = line.at
        if now - found[-1][0] >= TOGETHER or len(found) == 1:
            found.append((now, number))
        else:
            found[-1] = (found[-1][0], number)
    return found, now + END


def visible(text: Text) -> Text:
    """Cut a line to the picture's width, without the asterisks with which Ansible fills its headings."""
    text.rstrip()
    if text.plain.endswith("****"):
        text.right_crop(len(text.plain) - len(text.plain.rstrip("* ")))
    text.truncate(COLUMNS, overflow="ellipsis")
    return text


def classes(text: Text) -> str:
    """Return the CSS classes for a piece of a line that has one style."""
    styles = [span.style for span in text.spans if not isinstance(span.style, str)]
    names = [COLOURS.get(style.color.number or 0, "") for style in styles if style.color]
    return " ".join(filter(None, [*names, "s" if any(style.bold for style in styles) else ""]))


def drawn(text: Text, row: int) -> str:
    """Return one line as an element of the picture."""
    parts = [
        (classes(piece), html.escape(piece.plain, quote=False))
        for piece in text.divide(sorted({end for span in text.spans for end in (span.start, span.end)}))
        if piece.plain
    ]
    words = "".join(f'<tspan class="{name}">{words}</tspan>' if name else words for name, words in parts)
    return f'<text y="{row * HEIGHT - 5}">{words}</text>'


def moves(name: str, steps: list[tuple[float, int]], seconds: float) -> str:
    """Return keyframes: (seconds, lines to move down; negative is up) for each step."""
    rows = "".join(f"{100 * at / seconds:.2f}%{{transform:translateY({by * HEIGHT}px)}}" for at, by in steps)
    return f"    @keyframes {name} {{{rows}100%{{transform:translateY({steps[-1][1] * HEIGHT}px)}}}}"


def picture(cast: Path) -> str:
    """Return the recording as SVG."""
    lines = list(recording.lines(cast))
    texts = [AnsiDecoder().decode_line(line.text) for line in lines]
    times, seconds = frames(lines)
    scroll = [(at, min(0, ROWS - shown)) for at, shown in times]
    uncover = [(at, min(shown, ROWS)) for at, shown in times]
    uncover = uncover[: [shown for _, shown in uncover].index(ROWS) + 1]
    width, height = round(COLUMNS * WIDTH) + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    style = STYLE % {"font": FONT, "last": scroll[-1][1] * HEIGHT, "seconds": f"{seconds:.1f}", "times": TIMES}
    rows = "\n".join(drawn(visible(text), row) for row, text in enumerate(texts, start=1) if text.plain.strip())
    return f"""<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Drawn by tools/docs/demo_picture.py from demo.cast: run `make demo-picture`. -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc">
  <title id="title">A run of make demo</title>
  <desc id="desc">{ABOUT}</desc>
  <style>{style}
{moves("scroll", scroll, seconds)}
{moves("uncover", uncover, seconds)}
  </style>
  <clipPath id="screen"><rect width="{width - 2 * MARGIN}" height="{ROWS * HEIGHT}"/></clipPath>
  <rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>
  <g transform="translate({MARGIN} {MARGIN})" clip-path="url(#screen)">
<g id="lines">
{rows}
</g>
    <rect class="cover" x="-1" width="{width - 2 * MARGIN + 2}" height="{ROWS * HEIGHT}"/>
  </g>
</svg>
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="run `make demo` first, and record it")
    if parser.parse_args().record:
        if code := recording.record(CAST, ["make", "demo"]):
            return code
        subprocess.run(["make", "demo-down"], cwd=ROOT, check=True)
    PICTURE.write_text(picture(CAST))
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
