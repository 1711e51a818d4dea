# SPDX-License-Identifier: Apache-2.0
"""The comparison of AWS clients: botocore can read the server's answers, and the table has what was measured."""

from __future__ import annotations

from tools.bench import aws_clients


async def test_botocore_reads_what_the_server_answers():
    with aws_clients.server(0.0) as url:
        found = await aws_clients.measure("threads", url, pages=2, small=8)
    assert found.keys() >= {"start", "peak", "pages wall", "pages cpu", "pages late", "small wall"}
    assert all(value > 0 for name, value in found.items() if "late" not in name)


def test_the_table_has_medians_and_spreads():
    run = {
        "start": 1.0,
        "peak": 50.0,
        **{f"{load} {what}": 1.0 for load in ("pages", "small") for what in ("wall", "cpu", "late")},
    }
    runs = {"threads": [run, {**run, "start": 3.0}, {**run, "start": 2.0}], "aiobotocore": [{**run, "start": 4.0}]}
    head, first, *_, last = aws_clients.rows(runs, {"threads": 10.0, "aiobotocore": 12.0})
    assert head[1:] == ["botocore in threads", "aiobotocore", "ratio"]
    assert first[1:] == ["2.00 s (1.00-3.00)", "4.00 s (4.00-4.00)", "2.00x"]
    assert last[1:] == ["10.0 MiB", "12.0 MiB", "1.20x"]
