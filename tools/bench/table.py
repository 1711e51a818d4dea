# SPDX-License-Identifier: Apache-2.0
"""The targets, and the rows that judge runs by them. Pure: figures in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Run = Mapping[str, Any]
Runs = Sequence[Run]


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio`: how many times better our runtime is; "" where that has no meaning."""

    what: str
    peer: str
    ours: str
    ratio: str
    target: str
    met: bool


@dataclass(frozen=True)
class Target:
    """How one row is made: the bench whose runs it needs, and the function that judges them."""

    bench: str
    judge: Callable[[Runs], Row]


def pick(runs: Runs, side: str, **wanted: Any) -> Run:
    """Return the first run of the program `side` with these values. Raises LookupError if there is none."""
    for run in runs:
        if run["side"] == side and all(run.get(key) == value for key, value in wanted.items()):
            return run
    raise LookupError(f"no run of {side} with {wanted}")


def several(runs: Runs, side: str, key: str, **wanted: Any) -> list[float]:
    """Return the figure `key` of each run of the program `side` with these values, in their order. Raises LookupError
    without any.
    """
    pick(runs, side, **wanted)
    return [
        float(run[key])
        for run in runs
        if run["side"] == side and all(run.get(name) == value for name, value in wanted.items())
    ]


def medians(runs: Runs) -> list[Run]:
    """Merge all runs of the same side, tuning, size and form into one, whose figures are medians. The order is that of
    the first run of each."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(run.get(key) for key in ("side", "tuning", "size", "form")), []).append(run)
    return [
        {
            key: median(each[key] for each in group) if isinstance(value, int | float) else value
            for key, value in group[0].items()
        }
        for group in groups.values()
    ]


def spread(values: Sequence[float]) -> str:
    """Return the median, and minimum and maximum if there are several values."""
    text = seconds(median(values))
    return f"{text} ({min(values):.2f}-{max(values):.2f})" if len(values) > 1 else text


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def times(value: float) -> str:
    return f"{value:.0f}x" if value >= 10 else f"{value:.1f}x"


def _faster(what: str, peer: float, ours: float, at_least: float) -> Row:
    ratio = peer / ours
    return Row(what, seconds(peer), seconds(ours), times(ratio), f"≥ {at_least:g}x", ratio >= at_least)


def _initialised(what: str, peer: Run, ours: Run, at_least: float) -> Row:
    """Judge the seconds from the moment of leading to the last write. The seconds from the start of the process follow
    in parentheses."""
    row = _faster(what, peer["seconds_leading"], ours["seconds_leading"], at_least)
    with_start = [f"{cell} ({seconds(run['seconds'])})" for cell, run in ((row.peer, peer), (row.ours, ours))]
    return Row(row.what, *with_start, row.ratio, row.target, row.met)


def _defaults(runs: Runs) -> Row:
    peer, ours = (pick(runs, side, tuning="defaults") for side in ("peer", "ours"))
    return _initialised("1,000 Nodes initialised, both at defaults", peer, ours, 30)


def _tuned(runs: Runs) -> Row:
    peer, ours = (several(runs, side, "seconds_leading", tuning="tuned") for side in ("peer", "ours"))
    return Row(
        f"1,000 Nodes initialised, both tuned, {len(ours)} runs in turn",
        spread(peer),
        spread(ours),
        times(median(peer) / median(ours)),
        "faster in each run",
        all(mine < theirs for mine, theirs in zip(ours, peer, strict=True)),
    )


def _from_start(runs: Runs) -> Row:
    peer, ours = (several(runs, side, "seconds", tuning="tuned") for side in ("peer", "ours"))
    ratio = median(peer) / median(ours)
    return Row(
        "the same, from the start of the process",
        spread(peer),
        spread(ours),
        times(ratio),
        "≥ 1.3x, faster in each run",
        ratio >= 1.3 and all(mine < theirs for mine, theirs in zip(ours, peer, strict=True)),
    )


def _generator(form: str, at_most: float) -> Callable[[Runs], Row]:
    def judge(runs: Runs) -> Row:
        ours = several(runs, "ours", "seconds_leading", tuning="tuned")
        limit = [float(run["seconds"]) for run in runs if run["side"] == "generator" and run.get("form") == form]
        at_a_time = next(run["tuning"] for run in runs if run.get("form") == form)
        return Row(
            f"1,000 Nodes initialised, ours tuned; beside a raw generator ({form}, {at_a_time})",
            spread(limit),
            spread(ours),
            times(median(limit) / median(ours)),
            f"≤ {at_most:g} x its time",
            median(ours) <= at_most * median(limit),
        )

    return judge


def _api_cpu(size: int) -> Callable[[Runs], Row]:
    """Return a judge of the CPU seconds of kube-apiserver and etcd together, Events included."""

    def judge(runs: Runs) -> Row:
        peer, ours = (several(runs, side, "api_cpu", tuning="tuned", size=size) for side in ("peer", "ours"))
        return Row(
            f"CPU of the API server and etcd for {size:,} initialisations, {len(ours)} runs in turn",
            spread(peer),
            spread(ours),
            times(median(peer) / median(ours)),
            "≤ 0.75 x the peer's",
            median(ours) <= 0.75 * median(peer),
        )

    return judge


def _first_request(runs: Runs) -> Row:
    peer, ours = (pick(runs, side, tuning="start")["seconds"] for side in ("peer", "ours"))
    what = "the start of a process, until its first request leaves"
    return Row(what, seconds(peer), seconds(ours), times(peer / ours), "≤ 0.35 s", ours <= 0.35)


def _limited(runs: Runs) -> Row:
    peer, ours = pick(runs, "peer"), pick(medians(runs), "ours")
    refused = sum(several(runs, "ours", "cloud_refused"))
    row = _initialised("the same, cloud limited to 20 calls/s", peer, ours, 30)
    return Row(
        row.what,
        f"{row.peer}, {peer['cloud_refused']} of {peer['cloud_calls']} calls refused",
        f"{row.ours}, {refused:g} of {ours['cloud_calls']:g} refused",
        row.ratio,
        "≥ 30x, none refused",
        row.met and not refused,
    )


def _limited_limit(runs: Runs) -> Row:
    limit, ours = several(runs, "generator", "seconds"), several(runs, "ours", "seconds_leading")
    return Row(
        "1,000 Nodes initialised with the limited cloud; beside a raw generator, which needs no cloud",
        spread(limit),
        spread(ours),
        times(median(limit) / median(ours)),
        "≤ 1.1 x its time",
        median(ours) <= 1.1 * median(limit),
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
    """Return the number of calls about instances; calls for credentials do not count."""
    operations: Mapping[str, int] = figures["cloud_operations"]
    return sum(count for operation, count in operations.items() if operation.startswith("instances."))


def _memory(runs: Runs) -> Row:
    peer, ours = (
        max(*several(runs, side, "peak", size=5000), pick(runs, side, size=5000)["refresh"]["peak"])
        for side in ("peer", "ours")
    )
    return Row(
        "peak memory at 5,000 Nodes",
        f"{peer:.0f} MiB",
        f"{ours:.0f} MiB",
        times(peer / ours),
        "≤ the peer's",
        ours <= peer,
    )


def _cpu(runs: Runs) -> Row:
    """Judge the CPU seconds of the whole process in the largest runs, with its start and its Events. The seconds are
    not corrected, even if the peer drops most of its Events."""
    size = max(int(run["size"]) for run in runs)
    each, told = {}, {}
    for side in ("peer", "ours"):
        each[side] = median(several(runs, side, "cpu", size=size)) / size * 1000
        events = median(several(runs, side, "events", size=size))
        told[side] = f"{each[side]:.2f}, with {events:,.0f} Events"
    return Row(
        f"CPU seconds per 1,000 initialisations, of {size:,}",
        told["peer"],
        told["ours"],
        times(each["peer"] / each["ours"]),
        "≤ 0.8",
        each["ours"] <= 0.8,
    )


def _restart(runs: Runs) -> Row:
    peer, ours = (pick(runs, side) for side in ("peer", "ours"))
    row = _faster("restart with 500 unchanged Services", peer["seconds"], ours["seconds"], 20)
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
        what = f"a Node joins {run['nodes']:,} Nodes with {run['size']:,} Services: CPU, provider {provider}"
        return _alone(what, seconds(run["cpu"]), "≤ 1 s", run["cpu"] <= 1)

    return judge


#: The providers that `shared_nodes` measures.
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
    """Return in how many seconds, at least, a cloud with these limits accepts one listing and `routes` writes."""
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


# --- our runtime alone, without a peer: large, clouds, neighbours -----------------------------------------------------

NOT_MEASURED = "not measured"


def _alone(what: str, ours: str, target: str, is_met: bool) -> Row:
    return Row(what, NOT_MEASURED, ours, "", target, is_met)


def _several_clouds(runs: Runs) -> Row:
    one, three = pick(runs, "ours", tuning="tuned"), pick(runs, "ours", form="three clouds")
    ratio = three["seconds_leading"] / one["seconds_leading"]
    return _alone(
        f"{three['size']:,} Nodes of three clouds in one process, against one cloud",
        f"{seconds(three['seconds_leading'])}, {times(ratio)} of {seconds(one['seconds_leading'])}; "
        f"{three['cpu']:.1f} of {one['cpu']:.1f} CPU-s; {three['peak']:.0f} MiB of {one['peak']:.0f}",
        "≤ 1.5 x the time",
        ratio <= 1.5,
    )


def _large_growth(runs: Runs) -> Row:
    small, many = (pick(runs, "ours", tuning="tuned", size=size) for size in (5_000, 15_000))
    ratio = many["seconds_leading"] / small["seconds_leading"]
    took = f"{seconds(many['seconds_leading'])}, {times(ratio)} of {seconds(small['seconds_leading'])}"
    return _alone("15,000 Nodes initialised, against 5,000", took, "≤ 3.2 x the time", ratio <= 3.2)


def _large_restart(runs: Runs) -> Row:
    run = _many(runs)["restart"]
    took = f"{seconds(run['leading'])} + {seconds(run['refreshed'])}, {instance_calls(run)} calls"
    return _alone(
        "restart with 15,000 Nodes: leading + all compared with the cloud",
        took,
        "one listing",
        instance_calls(run) <= 15,
    )


def _large_relist(runs: Runs) -> Row:
    run = _many(runs)["relist"]
    return _alone(
        "15,000 Nodes listed again after a 410: until a new Node is initialised",
        seconds(run["seconds"]),
        "≤ 10 s",
        run["seconds"] <= 10,
    )


def _large_takeover(runs: Runs) -> Row:
    """Judge take-overs. A killed leader's Lease runs out 15 s after a standby saw its last renewal. As in client-go,
    the standby looks every 2 to 4.4 s, so it sees both the last renewal and the expiry up to 4.4 s late: 15 + 2 * 4.4 =
    23.8 s in all.
    """
    term, kill = (_many(runs)["takeover"][name] for name in ("term", "kill"))
    took = [f"{seconds(run['leading'])} + {seconds(run['refreshed'])}" for run in (term, kill)]
    return _alone(
        "take-over beside 15,000 Nodes, SIGTERM / SIGKILL: leading + all compared",
        " / ".join(took),
        "leading < 1 s / < 23.8 s",
        term["leading"] < 1 and kill["leading"] < 23.8,
    )


def _large_memory(runs: Runs) -> Row:
    many = _many(runs)
    peaks = [many["peak"], *(run["peak"] for run in _phases(many))]
    return _alone("peak memory at 15,000 Nodes", f"{max(peaks):.0f} MiB", "≤ 120 MiB", max(peaks) <= 120)


def _large_services(runs: Runs) -> Row:
    run = pick(runs, "ours", tuning="restart")
    told = f"{seconds(run['seconds'])}, {run['cloud_writes']} cloud writes"
    met = run["seconds"] <= 5 and not run["cloud_writes"]
    return _alone(f"restart with {run['size']:,} unchanged Services", told, "≤ 5 s, listings only", met)


def _large_join(runs: Runs) -> Row:
    run = pick(runs, "ours", tuning="join")
    each = run["updates"] / run["size"]
    told = f"{each:g} in {seconds(run['seconds'])}; the new Service in {seconds(run['new_service'])}"
    return _alone(
        f"a Node joins, {run['size']:,} Services: updates per Service; a new Service meanwhile",
        told,
        "1; not behind them",
        each == 1 and run["new_service"] < run["seconds"] / 2,
    )


def _large_lag(runs: Runs) -> Row:
    found = [run["lag"] for run in (*runs, *_phases(_many(runs))) if "lag" in run]
    taken, above = sum(each["taken"] for each in found), sum(each["above"] for each in found)
    return _alone(
        "event loop later than 50 ms, in all of these runs of `large`",
        f"{above} of {taken} samples ({above / taken:.1%})",
        "≤ 1 % (p99 < 50 ms)",
        above <= taken / 100,
    )


def _many(runs: Runs) -> Run:
    return pick(runs, "ours", tuning="tuned", size=15_000)


def _phases(many: Run) -> list[Run]:
    return [many["restart"], many["relist"], *many["takeover"].values()]


def _bounded(what: str, figures: Sequence[float], most: Sequence[float]) -> Row:
    """Judge figures that were measured only for our runtime, each against its limit in `most`."""
    ours, target = " / ".join(map(seconds, figures)), " / ".join(f"≤ {each:g} s" for each in most)
    met = all(figure <= bound for figure, bound in zip(figures, most, strict=True))
    return Row(what, "not measured", ours, "", target, met)


def _beside_failing(count: int) -> Callable[[Runs], Row]:
    def judge(runs: Runs) -> Row:
        run = pick(runs, "ours", form="failing", size=count)
        what = f"a new Service beside {count} failing ones of another namespace, median / maximum of 20"
        return _bounded(what, [run["seconds"], run["most"]], [2, 10])

    return judge


def _beside_slow(runs: Runs) -> Row:
    run = pick(runs, "ours", form="slow")
    what = "the instance of a new Node / a listing of 2,000, beside 20 calls of 60 s"
    return _bounded(what, [run["seconds"], run["most"]], [2, 10])


def _beside_many(runs: Runs) -> Row:
    run = pick(runs, "ours", form="many")
    return _bounded("a new Service after 500 of another namespace, 5 s each", [run["seconds"]], [10])


def _outage(runs: Runs) -> Row:
    what = "CPU of 5 minutes without the cloud, 500 Services, calls that fail at once / after 30 s"
    return _bounded(what, several(runs, "ours", "cpu", form="outage"), [1, 1])


# --- the table --------------------------------------------------------------------------------------------------------

TARGETS: Sequence[Target] = (
    Target("nodes", _defaults),
    Target("nodes", _tuned),
    Target("nodes", _from_start),
    Target("nodes", _generator("strategic merge patch", 1.05)),
    Target("nodes", _generator("PUT in protobuf, answered in protobuf", 1.15)),
    Target("nodes", _api_cpu(1000)),
    Target("growth", _api_cpu(5000)),
    Target("profile", _first_request),
    Target("limited", _limited),
    Target("limited", _limited_limit),
    Target("growth", _calls),
    Target("growth", _memory),
    Target("growth", _cpu),
    Target("restart", _restart),
    Target("services", _services),
    Target("join", _join),
    *(Target("shared", _shared(provider)) for provider in PROVIDERS),
    Target("routes", _routes),
    Target("handover", _handover),
    Target("large", _large_growth),
    Target("large", _large_restart),
    Target("large", _large_relist),
    Target("large", _large_takeover),
    Target("large", _large_memory),
    Target("large", _large_services),
    Target("large", _large_join),
    Target("large", _large_lag),
    Target("clouds", _several_clouds),
    *(Target("neighbours", _beside_failing(count)) for count in (5, 20, 50, 100)),
    Target("neighbours", _beside_slow),
    Target("neighbours", _beside_many),
    Target("neighbours", _outage),
)


def rows(results: Mapping[str, Runs]) -> list[Row]:
    """Return the rows of the benches that were run."""
    return [target.judge(results[target.bench]) for target in TARGETS if target.bench in results]


HEADER = ("bench", "peer", "ours", "ratio", "target", "met")


def cells(row: Row) -> tuple[str, ...]:
    return (row.what, row.peer, row.ours, row.ratio, row.target, "yes" if row.met else "**no**")


def markdown(table: Sequence[Row]) -> str:
    lines = [HEADER, ("---",) * len(HEADER), *(cells(row) for row in table)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(table: Sequence[Row]) -> str:
    """Return the table as text for a terminal."""
    lines = [HEADER, *(tuple(cell.replace("**", "") for cell in cells(row)) for row in table)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)
