# SPDX-License-Identifier: Apache-2.0
"""How benches use figures: verdicts on the targets, the page, and the parsing of /proc and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from tools.bench import cluster, measure, model, objects, page, table

FORMS = ("strategic merge patch", "PUT in protobuf, answered in protobuf")


def initialised(
    side: str, seconds: float, tuning: str = "tuned", size: int = 1000, api_cpu: float = 9.0
) -> dict[str, Any]:
    return {
        "side": side,
        "tuning": tuning,
        "size": size,
        "seconds": seconds,
        "seconds_leading": seconds,
        "api_cpu": api_cpu,
    }


def nodes(ours: list[float], peer: list[float], api_cpu: float = 8.0) -> list[dict[str, Any]]:
    """Return a run of each side at its defaults, then rounds of both sides tuned, and runs of the generator, which
    takes 3.0 s in every form.
    """
    made = [initialised("peer", 150.0, "defaults"), initialised("ours", 4.0, "defaults")]
    for mine, theirs in zip(ours, peer, strict=True):
        made += [initialised("peer", theirs), initialised("ours", mine, api_cpu=api_cpu)]
        made += [
            {"side": "generator", "form": form, "tuning": "16 at a time", "size": 1000, "seconds": 3.0}
            for form in FORMS
        ]
    return made


@pytest.mark.parametrize(
    ("ours", "api_cpu", "expected"),
    [
        ([2.6, 2.6, 9.0], 6.7, [True, False, False, True, True, True]),
        ([2.7, 2.7, 2.7], 6.7, [True, True, False, True, True, True]),
        ([3.2, 3.2, 3.2], 6.7, [True, True, False, False, True, True]),
        ([3.46, 3.46, 3.46], 6.7, [True, True, False, False, False, True]),
        ([2.6, 2.6, 2.6], 6.8, [True, True, True, True, True, False]),
    ],
    ids=["one slow run", "a late start", "slower than patches", "far from the limit", "costs the API server too much"],
)
def test_the_targets_of_initialisation(ours: list[float], api_cpu: float, expected: list[bool]) -> None:
    rows = table.rows({"nodes": nodes(ours, [3.5, 3.5, 3.5], api_cpu)})
    assert [row.met for row in rows] == expected
    assert rows[1].ours == f"{sorted(ours)[1]:.2f} s ({min(ours):.2f}-{max(ours):.2f})"


def test_medians_of_runs_in_turn() -> None:
    runs = nodes([3.0, 4.0, 9.0], [3.5, 3.6, 3.7])
    found = table.medians(runs)
    assert [(run["side"], run["tuning"], run.get("form", ""), run["seconds"]) for run in found] == [
        ("peer", "defaults", "", 150.0),
        ("ours", "defaults", "", 4.0),
        ("peer", "tuned", "", 3.6),
        ("ours", "tuned", "", 4.0),
        *(("generator", "16 at a time", form, 3.0) for form in FORMS),
    ]


def phase(**figures: Any) -> dict[str, Any]:
    return {"peak": 120.0, "lag": {"taken": 100, "above": 1}, "cloud_operations": {"instances.list": 15}, **figures}


def large(**changed: Any) -> list[dict[str, Any]]:
    """Return runs that meet every target; `changed` replaces figures of the run with 15,000 Nodes."""
    many = {
        **initialised("ours", 60.0, size=15_000),
        **phase(),
        "restart": phase(leading=1.0, refreshed=2.0),
        "relist": phase(seconds=4.0),
        "takeover": {"term": phase(leading=0.1, refreshed=2.0), "kill": phase(leading=15.0, refreshed=2.0)},
    }
    services = {"side": "ours", "size": 5000, "cloud_writes": 0, **phase()}
    return [
        {**initialised("ours", 20.0, size=5_000), **phase()},
        many | changed,
        {**services, "tuning": "restart", "seconds": 4.0},
        {**services, "tuning": "join", "updates": 5000, "seconds": 20.0, "new_service": 0.5},
    ]


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, ""),
        ({"seconds_leading": 64.1}, "15,000 Nodes initialised"),
        ({"restart": phase(leading=1.0, refreshed=2.0, cloud_operations={"instances.list": 16})}, "restart with 15"),
        ({"relist": phase(seconds=10.1)}, "listed again"),
        ({"takeover": {name: phase(leading=1.5, refreshed=2.0) for name in ("term", "kill")}}, "take-over"),
        ({"relist": phase(seconds=4.0, peak=120.1)}, "peak memory"),
        ({"lag": {"taken": 100, "above": 3}}, "event loop"),
    ],
)
def test_the_targets_of_large_clusters(changed: dict[str, Any], missed: str) -> None:
    found = [row.what for row in table.rows({"large": large(**changed)}) if not row.met]
    assert len(found) == bool(missed) and all(missed in what for what in found)


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({"tuning": "restart", "seconds": 5.1}, "restart with 5,000"),
        ({"tuning": "restart", "cloud_writes": 1}, "restart with 5,000"),
        ({"tuning": "join", "updates": 5001}, "a Node joins"),
        ({"tuning": "join", "new_service": 11.0}, "a Node joins"),
    ],
)
def test_the_targets_of_many_services(changed: dict[str, Any], missed: str) -> None:
    runs = [run | changed if run["tuning"] == changed["tuning"] else run for run in large()]
    (found,) = [row.what for row in table.rows({"large": runs}) if not row.met]
    assert missed in found


def test_a_model_of_what_was_not_measured() -> None:
    """The model draws lines through the measured points, and shows the lines' error at a larger point."""
    figures = {"api_cpu": 1.0, "cpu": 1.0, "peak": 50.0, "cloud_calls": 3}
    growth = [{**initialised("ours", size / 1000 + 1, size=size), **figures} for size in (1000, 2000, 5000)]
    measured = {**initialised("ours", 20.0, size=15_000), **figures, "cpu": 2.0}
    for run in growth:
        run |= {"cpu": run["size"] / 1000, "peak": 50 + run["size"] / 1024}
    text = model.text({"growth": growth, "large": [measured]})
    assert "| 15,000, by the model | 16 | 1 | 15 | 65 | 17 |" in text
    assert "| 15,000, measured | 20 | 1 | 2 | 50 | 3 |" in text
    assert "| error of the model | -20% | +0% | +650% | +29% |  |" in text
    assert "| 100,000, by the model | 101 | 1 | 100 | 148 | 102 |" in text
    assert "1 ms of CPU a Node, so at most 1,000 Nodes a second" in text and "1.0 KiB" in text


def test_the_lag_of_the_event_loop_by_its_metric() -> None:
    text = "".join(
        f'ccm_event_loop_lag_seconds_bucket{{le="{bound}"}} {count}\n'
        for bound, count in (("0.01", 90.0), ("0.05", 97.0), ("0.1", 99.0), ("+Inf", 100.0))
    )
    assert measure.lag(text) == {"taken": 100, "above": 3}


@pytest.mark.parametrize(
    ("refused", "seconds", "expected"),
    [(0, 3.0, [True, True]), (1, 3.0, [False, True]), (0, 3.4, [False, False])],
    ids=["met", "refused", "slow"],
)
def test_the_targets_of_a_limited_cloud(refused: int, seconds: float, expected: list[bool]) -> None:
    runs = [
        {**initialised("peer", 95.0), "cloud_calls": 2042, "cloud_refused": 1042},
        {**initialised("ours", 3.0), "cloud_calls": 4, "cloud_refused": 0},
        *({**initialised("ours", seconds), "cloud_calls": 4, "cloud_refused": refused} for _ in range(2)),
        {"side": "generator", "seconds": 3.0},
    ]
    limited, limit = table.rows({"limited": runs})
    assert [limited.met, limit.met] == expected
    assert "1042 of 2042 calls refused" in limited.peer and f"{2 * refused} of 4 refused" in limited.ours


def test_fewer_new_services_of_the_peer_are_scaled_and_the_row_says_so() -> None:
    runs = [{"side": "peer", "size": 30, "seconds": 75.0}, {"side": "ours", "size": 200, "seconds": 40.0}]
    (row,) = table.rows({"services": runs})
    assert row.peer == "500.0 s (30 took 75.0 s, one after the other)"
    assert (row.ratio, row.met) == ("12x", True)


@pytest.mark.parametrize("taken, is_met", [(80.0, True), (84.0, False)])
def test_three_clouds_are_judged_by_the_time_of_one(taken: float, is_met: bool) -> None:
    one = {"side": "ours", "tuning": "tuned", "size": 15_000, "seconds_leading": 55.0, "cpu": 20.0, "peak": 112}
    (row,) = table.rows({"clouds": [one, {**one, "form": "three clouds", "seconds_leading": taken, "cpu": 30.0}]})
    assert row.met is is_met
    assert "30.0 of 20.0 CPU-s" in row.ours


def test_routes_are_judged_by_what_the_cloud_takes() -> None:
    assert table.routes_bound(100) == pytest.approx(3.15)
    assert table.routes_bound(10) == pytest.approx(0.1)


def test_a_bench_that_was_not_run_has_no_row() -> None:
    assert table.rows({}) == []


def test_the_page_agrees_with_its_figures() -> None:
    assert page.PAGE.read_text() == page.render(page.read()), "docs/performance.md was edited: make bench writes it"


def test_what_a_process_cost() -> None:
    stat = "7 (a (strange) name) S " + " ".join(str(number) for number in range(1, 40))
    assert measure.cpu_seconds(stat) == pytest.approx((11 + 12) / measure.TICKS)
    assert measure.peak_mib("Name:\tccm\nVmPeak:\t 9 kB\nVmHWM:\t   2048 kB\n") == 2.0


def test_what_an_api_server_wrote() -> None:
    sample = 'apiserver_request_total{{code="200",resource="{}",subresource="{}",verb="{}"}} {}\n'
    text = "".join(
        sample.format(*values)
        for values in (("nodes", "status", "PATCH", 5), ("nodes", "", "LIST", 7), ("leases", "", "PUT", 9))
    )
    assert measure.api_writes(text) == {"PATCH nodes status": 5}
    assert measure.difference({"PATCH nodes status": 3}, measure.api_writes(text)) == {"PATCH nodes status": 2}


def test_a_work_queue_by_its_metrics() -> None:
    text = (
        'workqueue_depth{name="service"} 2\nworkqueue_depth{name="Nodes"} 5\n'
        'workqueue_work_duration_seconds_count{name="service"} 31.0\n'
    )
    assert measure.queue(text, "service") == (31, 2)


async def test_frames_of_both_encodings_are_put_together() -> None:
    async def chunks(*parts: bytes) -> Any:
        for part in parts:
            yield part

    split = [frame async for frame in cluster.split_frames(chunks(b"\0\0\0\3ab", b"c\0\0", b"\0\1d"))]
    assert split == [b"abc", b"d"]
    assert [line async for line in cluster.split_lines(chunks(b'{"a"', b":1}\n\n{}\n"))] == [b'{"a":1}', b"{}"]


def test_done_is_seen_in_an_encoded_node() -> None:
    tainted = b'{"name":"bench-00007","taints":[{"key":"node.cloudprovider.kubernetes.io/uninitialized"}]}'
    assert not objects.is_initialised(tainted)
    assert not objects.is_initialised(b'{"name":"bench-00007"}'), "upstream lifts the taint before addresses are there"
    assert objects.is_initialised(b'{"name":"bench-00007","addresses":[{"type":"InternalIP"}]}')
    assert objects.object_name(tainted) == "bench-00007"


def test_the_page_names_the_framework_that_was_measured() -> None:
    results = {
        name: {**result, "machine": {**result["machine"], "cloud-provider": "v0.99.1"}}
        for name, result in page.read().items()
    }
    assert "`k8s.io/cloud-provider` v0.99.1" in page.render(results)


def taken(result: dict[str, Any], processor: str, framework: str) -> dict[str, Any]:
    """Return figures as if they were measured on this processor, with this version of the upstream framework."""
    return {**result, "machine": {**result["machine"], "processor": processor, "cloud-provider": framework}}


def test_the_page_says_which_figures_are_of_another_framework_or_machine() -> None:
    """Benches may run on different machines and with different frameworks. The page then says so beside the figures."""
    results = {name: taken(result, "an old one", "v0.98.0") for name, result in page.read().items()}
    results["encodings"] = taken(results["encodings"], "a new one", "v0.99.1")
    text = " ".join(page.render(results).split())
    assert "`k8s.io/cloud-provider` v0.98.0 and, in encodings, v0.99.1)" in text
    assert "| peer, v0.99.1 |" in text and "| cloud-provider | v0.98.0 |" in text
    assert "The machine (a new one, Kubernetes" in text and "where the peer (v0.98.0) took" in text
    assert "But encodings ran on: a new one, Kubernetes" in text


@pytest.mark.parametrize(
    ("written", "note"), [("PUT nodes", ""), ("PATCH nodes", "read and patched in JSON. So compare")]
)
def test_figures_from_before_protobuf_are_named_so(written: str, note: str) -> None:
    here = page.read()["encodings"]
    nodes = [run | {"api_writes": {written: 1000}} if run["side"] == "ours" else run for run in here["runs"]]
    same = {"nodes": {**here, "runs": nodes}, "encodings": here}
    assert note in page.other_tables(same) and bool(note) == bool(page.other_tables(same))
    assert page.elsewhere(same) == ""


def test_the_framework_is_named_only_where_a_peer_ran() -> None:
    here = taken(page.read()["encodings"], "one", "v0.98.0")
    alone = {**taken(here, "one", "v0.99.1"), "runs": [{"side": "ours"}]}
    assert page.framework({"encodings": here, "neighbours": alone}) == "v0.98.0"


def test_every_kept_figure_is_linked() -> None:
    text = page.PAGE.read_text()
    assert [name for name in page.read() if f"(performance/{name}.json)" not in text] == []
