# SPDX-License-Identifier: Apache-2.0
"""The targets, and the rows that runs make of them. Pure: figures in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Run = Mapping[str, Any]
Runs = Sequence[Run]


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio` is how many times better ours is, where that has a meaning."""

    what: str
    peer: str
    ours: str
    ratio: str
    target: str
    met: bool


@dataclass(frozen=True)
class Target:
    """A row that issue #4 asks for: the bench whose runs it needs, and how they are judged."""

    bench: str
    judge: Callable[[Runs], Row]


def pick(runs: Runs, side: str, **wanted: Any) -> Run:
    """The run of a side. Raises LookupError when there is none."""
    for run in runs:
        if run["side"] == side and all(run.get(key) == value for key, value in wanted.items()):
            return run
    raise LookupError(f"no run of {side} with {wanted}")


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def times(value: float) -> str:
    return f"{value:.0f}x" if value >= 10 else f"{value:.1f}x"


def _faster(what: str, peer: float, ours: float, at_least: float) -> Row:
    ratio = peer / ours
    return Row(what, seconds(peer), seconds(ours), times(ratio), f"≥ {at_least:g}x", ratio >= at_least)


def _initialised(what: str, peer: Run, ours: Run, at_least: float) -> Row:
    """From leading, which leaves out the start of the process on both sides; that is told, too."""
    row = _faster(what, peer["seconds_leading"], ours["seconds_leading"], at_least)
    with_start = [f"{cell} ({seconds(run['seconds'])})" for cell, run in ((row.peer, peer), (row.ours, ours))]
    return Row(row.what, *with_start, row.ratio, row.target, row.met)


def _defaults(runs: Runs) -> Row:
    peer, ours = (pick(runs, side, tuning="defaults") for side in ("peer", "ours"))
    return _initialised("1,000 Nodes initialised, both at defaults", peer, ours, 30)


def _tuned(runs: Runs) -> Row:
    peer, ours = (pick(runs, side, tuning="tuned") for side in ("peer", "ours"))
    return _initialised("1,000 Nodes initialised, both tuned", peer, ours, 1.5)


def _generator(runs: Runs) -> Row:
    ours = pick(runs, "ours", tuning="tuned")["seconds_leading"]
    best = min((run for run in runs if run["side"] == "generator"), key=lambda run: float(run["seconds"]))
    return Row(
        f"the same against a raw generator ({best['tuning']})",
        seconds(best["seconds"]),
        seconds(ours),
        times(best["seconds"] / ours),
        "≤ 1.25 x its time",
        ours <= 1.25 * best["seconds"],
    )


def _limited(runs: Runs) -> Row:
    peer, ours = (pick(runs, side) for side in ("peer", "ours"))
    row = _initialised("the same, cloud limited to 20 calls/s", peer, ours, 30)
    return Row(
        row.what,
        f"{row.peer}, {peer['cloud_refused']} of {peer['cloud_calls']} calls refused",
        f"{row.ours}, {ours['cloud_refused']} of {ours['cloud_calls']} refused",
        row.ratio,
        "≥ 30x, none refused",
        row.met and not ours["cloud_refused"],
    )


def _calls(runs: Runs) -> Row:
    peer, ours = (pick(runs, side, size=5000) for side in ("peer", "ours"))
    init, refresh = ours["cloud_calls"], instance_calls(ours["refresh"])
    return Row(
        "cloud calls for 5,000 Nodes: initialisation / one refresh",
        f"{peer['cloud_calls']} / {instance_calls(peer['refresh'])}",
        f"{init} / {refresh}",
        times(peer["cloud_calls"] / init),
        "≤ 7 / ≤ 6",
        init <= 7 and refresh <= 6,
    )


def instance_calls(figures: Run) -> int:
    """Those about instances alone: credentials are no part of a refresh."""
    operations: Mapping[str, int] = figures["cloud_operations"]
    return sum(count for operation, count in operations.items() if operation.startswith("instances."))


def _memory(runs: Runs) -> Row:
    peer, ours = (pick(runs, side, size=5000)["peak"] for side in ("peer", "ours"))
    return Row(
        "peak memory at 5,000 Nodes",
        f"{peer:.0f} MiB",
        f"{ours:.0f} MiB",
        times(peer / ours),
        "≤ the peer's",
        ours <= peer,
    )


def _cpu(runs: Runs) -> Row:
    """Of the largest run, whole process, start and Events included: also where the peer drops most of its Events."""
    peer, ours = (max((run for run in runs if run["side"] == side), key=_size) for side in ("peer", "ours"))
    each = {run["side"]: run["cpu"] / run["size"] * 1000 for run in (peer, ours)}
    told = {run["side"]: f"{each[run['side']]:.2f}, with {run['events']:,} Events" for run in (peer, ours)}
    return Row(
        f"CPU seconds per 1,000 initialisations, of {ours['size']:,}",
        told["peer"],
        told["ours"],
        times(each["peer"] / each["ours"]),
        "≤ the peer's",
        each["ours"] <= each["peer"],
    )


def _size(run: Run) -> int:
    return int(run["size"])


def _restart(runs: Runs) -> Row:
    peer, ours = (pick(runs, side) for side in ("peer", "ours"))
    row = _faster("restart beside 500 unchanged Services", peer["seconds"], ours["seconds"], 20)
    return Row(
        row.what,
        f"{row.peer}, {peer['cloud_writes']} cloud writes",
        f"{row.ours}, {ours['cloud_writes']} cloud writes",
        row.ratio,
        "≥ 20x, no write",
        row.met and not ours["cloud_writes"],
    )


def _services(runs: Runs) -> Row:
    peer, ours = (pick(runs, side) for side in ("peer", "ours"))
    whole = peer["seconds"] / peer["size"] * ours["size"]
    row = _faster(f"{ours['size']} new Services, 2 s each in the cloud", whole, ours["seconds"], 10)
    told = f"{row.peer} ({peer['size']} took {seconds(peer['seconds'])}, one after the other)"
    return Row(row.what, told, row.ours, row.ratio, row.target, row.met)


def _join(runs: Runs) -> Row:
    peer, ours = (pick(runs, side) for side in ("peer", "ours"))
    each = {run["side"]: run["updates"] / run["size"] for run in (peer, ours)}
    return Row(
        "a Node joins, 200 Services: updates per Service",
        f"{each['peer']:g}",
        f"{each['ours']:g}",
        times(each["peer"] / each["ours"]) if each["ours"] else "",
        "1",
        each["ours"] == 1,
    )


def _shared(provider: str) -> Callable[[Runs], Row]:
    def judge(runs: Runs) -> Row:
        run = pick(runs, "ours", tuning=provider)
        what = f"a Node joins {run['nodes']:,} beside {run['size']:,} Services: CPU, provider {provider}"
        return Row(what, "not measured", seconds(run["cpu"]), "", "≤ 1 s", run["cpu"] <= 1)

    return judge


#: `shared_nodes` measures these.
PROVIDERS = ("example", "sim", "static", "openstack", "hetzner", "aws")


def _routes(runs: Runs) -> Row:
    peer, ours = (pick(runs, side) for side in ("peer", "ours"))
    bound = routes_bound(ours["size"])
    return Row(
        f"{ours['size']} routes, cloud limited to 20 calls/s (which alone takes {seconds(bound)})",
        f"{seconds(peer['seconds_leading'])}, {peer['cloud_refused']} calls refused",
        f"{seconds(ours['seconds_leading'])}, {ours['cloud_refused']} refused",
        times(peer["seconds_leading"] / ours["seconds_leading"]),
        "≤ 1.5 x the cloud's limit",
        ours["seconds_leading"] <= 1.5 * bound,
    )


def routes_bound(routes: int, *, per_second: float = 20, burst: int = 40, latency: float = 0.05) -> float:
    """The least time in which a cloud with these limits takes one listing and then that many writes, in seconds."""
    return max(0.0, (routes + 1 - burst) / per_second) + 2 * latency


def _handover(runs: Runs) -> Row:
    peer, ours = (pick(runs, side) for side in ("peer", "ours"))
    return Row(
        f"handover on SIGTERM, the slowest of {ours['size']} (peer: of {peer['size']})",
        seconds(peer["seconds"]),
        seconds(ours["seconds"]),
        times(peer["seconds"] / ours["seconds"]),
        "< 1 s",
        ours["seconds"] < 1,
    )


TARGETS: Sequence[Target] = (
    Target("nodes", _defaults),
    Target("nodes", _tuned),
    Target("nodes", _generator),
    Target("limited", _limited),
    Target("growth", _calls),
    Target("growth", _memory),
    Target("growth", _cpu),
    Target("restart", _restart),
    Target("services", _services),
    Target("join", _join),
    *(Target("shared", _shared(provider)) for provider in PROVIDERS),
    Target("routes", _routes),
    Target("handover", _handover),
)


def rows(results: Mapping[str, Runs]) -> list[Row]:
    """Of the benches that were run."""
    return [target.judge(results[target.bench]) for target in TARGETS if target.bench in results]


HEADER = ("bench", "peer", "ours", "ratio", "target", "met")


def cells(row: Row) -> tuple[str, ...]:
    return (row.what, row.peer, row.ours, row.ratio, row.target, "yes" if row.met else "**no**")


def markdown(table: Sequence[Row]) -> str:
    lines = [HEADER, ("---",) * len(HEADER), *(cells(row) for row in table)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(table: Sequence[Row]) -> str:
    """For a terminal."""
    lines = [HEADER, *(tuple(cell.replace("**", "") for cell in cells(row)) for row in table)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)
