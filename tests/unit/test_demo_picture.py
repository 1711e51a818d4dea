# SPDX-License-Identifier: Apache-2.0
"""The picture of `make demo` agrees with its recording, and its colours have enough contrast."""

from __future__ import annotations

import importlib
import itertools
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return the module that records and the module that draws."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docs"))
    return importlib.import_module("recording"), importlib.import_module("demo_picture")


@pytest.fixture
def drawn() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "docs/images/demo.svg").getroot()


def words(element: ElementTree.Element) -> list[str]:
    return ["".join(line.itertext()) for line in element.iter(f"{SVG}text")]


def test_the_picture_is_what_the_recording_gives(modules: tuple[Any, Any]):
    _, picture = modules
    assert picture.PICTURE.read_text() == picture.picture(picture.CAST), "stale: run python tools/docs/demo_picture.py"


def test_the_recording_has_the_whole_demo_and_nothing_of_the_machine(modules: tuple[Any, Any]):
    recording, picture = modules
    text = "\n".join(line.text for line in recording.lines(picture.CAST))
    titles = re.findall(r"^\x1b\[1m== (.*?)\x1b", text, re.MULTILINE)
    told = re.findall(r'^ +say\("(.*)"\)', (ROOT / "tools/bed/demo.py").read_text(), re.MULTILINE)
    assert titles == told
    assert re.findall(r"(?:/root|/home|/work|/tmp/|/Users)\S*", text) == []


def test_the_first_frame_of_the_recording_has_the_command(modules: tuple[Any, Any]):
    recording, picture = modules
    first = next(recording.lines(picture.CAST))
    assert (first.at, first.text) == (0.0, "$ make demo")


def test_the_picture_is_text_without_scripts_and_without_other_files(drawn: ElementTree.Element):
    text = (ROOT / "docs/images/demo.svg").read_text()
    assert len(text.encode()) < 100_000
    assert drawn.find(f"{SVG}title") is not None and drawn.find(f"{SVG}desc") is not None
    assert not re.search(r"<script|<image|<foreignObject|\bon\w+=|url\((?!#)|href=|@import|@font-face", text)
    shown = words(drawn)
    assert shown[0] == "$ make demo"
    assert sum("sim://north/i-00000000000" in line for line in shown[-25:]) == 3
    assert max(map(len, shown)) <= 110


def test_it_is_readable_in_light_and_dark_and_at_rest(drawn: ElementTree.Element):
    style = drawn.findtext(f"{SVG}style") or ""
    light, dark, moving = re.split(r"@media \(prefers-(?:color-scheme: dark|reduced-motion: no-preference)\)", style)
    for colours in (light, dark):
        values = dict(re.findall(r"(\.\w+|text) \{ fill: (#\w{6});", colours))
        page = values.pop(".page")
        assert values.pop(".cover") == page
        for name, value in values.items():
            assert contrast(value, page) >= 4.5, (name, value)
    assert "animation" not in light + dark and moving.count("animation:") == 2
    at_rest = re.search(r"#lines \{ transform: translateY\((-\d+)px\)", light)
    assert at_rest is not None and moving.count(f"100%{{transform:translateY({at_rest[1]}px)}}") == 1


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours as WCAG defines it, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_what_a_command_prints_is_recorded_as_it_stood(modules: tuple[Any, Any], tmp_path: Path):
    recording, _ = modules
    script = f"printf '50%%\\r\\033[K'; echo done; printf '\\033[32m'; echo {ROOT}/x; stty size"
    cast = tmp_path / "a.cast"
    assert recording.record(cast, ["sh", "-c", script]) == 0
    typed, *shown = [line.text for line in recording.lines(cast)]
    assert typed.startswith("$ sh -c ") and str(ROOT) not in cast.read_text()
    assert shown == ["done", "\x1b[32m./x", f"{recording.ROWS} {recording.COLUMNS}"]
    times = [line.at for line in recording.lines(cast)]
    assert times == sorted(times) and times[0] >= 0


def test_a_run_that_fails_leaves_the_recording_alone(modules: tuple[Any, Any], tmp_path: Path):
    recording, _ = modules
    cast = tmp_path / "a.cast"
    cast.write_text("before")
    assert recording.record(cast, [sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert cast.read_text() == "before"


def test_every_line_appears_and_the_last_one_stays(modules: tuple[Any, Any]):
    recording, picture = modules
    lines = [recording.Line(at, "x") for at in (0.5, 0.5, 300.0, 300.1, 301.0)]
    times, seconds = picture.frames(lines)
    shown = [number for _, number in times]
    assert shown == sorted(set(shown)) and shown[-1] == len(lines)
    assert [at for at, _ in times] == sorted(at for at, _ in times)
    assert seconds == pytest.approx(times[-1][0] + picture.END, abs=picture.TOGETHER)
    pauses = [after[0] - before[0] for before, after in itertools.pairwise(times)]
    assert max(pauses) <= picture.LONGEST + picture.TOGETHER
