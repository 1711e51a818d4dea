# SPDX-License-Identifier: Apache-2.0
"""What is made of figures: the targets' verdicts, the page, and the parsing of what processes tell."""

from __future__ import annotations

from typing import Any

import pytest

from . import cluster, measure, objects, page, scenarios, table


def nodes(ours: float, generator: float = 3.0) -> list[dict[str, Any]]:
    made = [
        {"side": side, "tuning": tuning, "size": 1000, "seconds": seconds, "seconds_leading": seconds}
        for side, tuning, seconds in (
            ("peer", "defaults", 150.0),
            ("peer", "tuned", 6.0),
            ("ours", "defaults", ours),
            ("ours", "tuned", ours),
        )
    ]
    return [*made, {"side": "generator", "tuning": "16 at a time", "size": 1000, "seconds": generator}]


@pytest.mark.parametrize(("ours", "met"), [(3.7, [True, True, True]), (4.5, [True, False, False])])
def test_the_targets_of_initialisation(ours: float, met: list[bool]) -> None:
    assert [row.met for row in table.rows({"nodes": nodes(ours)})] == met


@pytest.mark.parametrize(
    ("refused", "seconds", "met"), [(0, 3.0, True), (1, 3.0, False), (0, 3.4, False)], ids=["met", "refused", "slow"]
)
def test_a_refused_call_fails_the_target_of_a_limited_cloud(refused: int, seconds: float, met: bool) -> None:
    runs = [
        {"side": "peer", "seconds": 96.0, "seconds_leading": 95.0, "cloud_calls": 2042, "cloud_refused": 1042},
        {"side": "ours", "seconds": 9.0, "seconds_leading": seconds, "cloud_calls": 4, "cloud_refused": refused},
    ]
    (row,) = table.rows({"limited": runs})
    assert row.met is met
    assert "1042 of 2042 calls refused" in row.peer


def test_fewer_new_services_of_the_peer_are_scaled_and_the_row_says_so() -> None:
    runs = [{"side": "peer", "size": 30, "seconds": 75.0}, {"side": "ours", "size": 200, "seconds": 40.0}]
    (row,) = table.rows({"services": runs})
    assert row.peer == "500.0 s (30 took 75.0 s, one after the other)"
    assert (row.ratio, row.met) == ("12x", True)


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
    assert scenarios.queue_figures(text, "service") == (31, 2)


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
