# SPDX-License-Identifier: Apache-2.0
"""The page has every figure, the smallest number of workers first, and keeps figures that are not measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.bench_collection import page


def run(step: str, hosts: int, seconds: float = 61.4) -> dict[str, Any]:
    return {"step": step, "hosts": hosts, "seconds": seconds, "cpu": 20.6, "lines": 99, "status": 0}


def test_each_figure_is_a_row() -> None:
    runs = [run("site", 200), run("site", 50, 9.5)]
    version = {"version": "now", "taken": "today", "machine": "2 cores", "load": 1.5, "runs": runs}
    text = page.render([version], 1.0, 2.0)
    assert text.index("| site | 50 | 10 | 21 | 99 |") < text.index("| site | 200 | 61 | 21 | 99 |")
    assert "## Now" in text and "2 cores" in text and "1.5 before" in text and "2 s after its taint" in text


def test_a_page_without_figures_says_so() -> None:
    assert "Nothing was measured yet." in page.render([], 1.0, 1.0)


def test_new_figures_replace_old_ones_of_the_same_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "FIGURES", tmp_path)
    page.keep("now", [run("site", 50), run("site", 200)], "2 cores", 0.0)
    page.keep("now", [run("site", 50, 1.0)], "2 cores", 0.0)
    page.keep("before", [run("site", 50, 7.0)], "2 cores", 0.0)
    now, before = page.read()
    assert (before["version"], now["version"]) == ("before", "now")
    assert {(each["hosts"], each["seconds"]) for each in now["runs"]} == {(50, 1.0), (200, 61.4)}


def targets(**more: float) -> str:
    return page.targets([run("site", 200, 150.0) | {"adoption": 40.0} | more, run("site", 1000, 800.0)])


def test_each_target_is_met_or_not() -> None:
    assert targets().count("| yes |") == 4
    assert "| `site.yml` over 1,000 workers, against 200 | 5.3x | ≤ 5.5x | yes |" in targets()
    for slow in ({"seconds": 157.0}, {"cpu": 173.0}, {"adoption": 61.0}, {"seconds": 145.0}):
        assert targets(**slow).count("| **no** |") == 1


def test_no_target_is_met_before_it_was_measured() -> None:
    assert page.targets([run("site", 200) | {"adoption": 40.0}]) == ""
    assert page.targets([run("site", 200), run("site", 1000)]) == ""


def test_the_oldest_core_is_compared_with_the_newest() -> None:
    runs = [run("site", 200, 150.0) | {"adoption": 40.0}, run("site", 1000, 800.0)]
    versions = [
        {"version": f"with ansible-core {core}", "runs": [run("site", 200, seconds), run("site", 50, 1.0)]}
        for core, seconds in (("2.18", 220.0), ("2.21", 200.0))
    ]
    row = "| `site.yml` on ansible-core 2.18, against 2.21 |"
    assert f"{row} 1.10x | ≤ 1.1x | yes |" in page.targets(runs, versions)
    versions[0]["runs"] = [run("site", 200, 230.0)]
    assert f"{row} 1.15x | ≤ 1.1x | **no** |" in page.targets(runs, versions)
    assert row not in page.targets(runs, versions[1:])
