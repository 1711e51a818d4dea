# SPDX-License-Identifier: Apache-2.0
"""`ccm check-provider NAME --cloud-config FILE`: runs the conformance kit and prints its results."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fnmatch
import ipaddress
import sys
from pathlib import Path

from ccm.cloud import CloudError, ConfigError, ProviderConfig, Transient, registry

from . import CASES, Case, Outcome, Result, Subject, check


def main(argv: list[str]) -> int:
    """Run `ccm check-provider`. Return the exit status: 0 if nothing failed; 1 if a case failed, the provider could not
    be started, or the run was interrupted; 2 if the command line or the configuration is invalid."""
    args = _parser().parse_args(argv)
    chosen = [case for case in CASES if fnmatch.fnmatchcase(case.name, args.case)]
    if not chosen:
        print(f"ccm: no case matches {args.case!r}: see ccm check-provider --list", file=sys.stderr)
        return 2
    if args.list:
        for case in chosen:
            print(f"{case.name}\n    {case.summary}")
        return 0
    try:
        if args.name is None:
            raise ConfigError([f"the provider is missing: set NAME to one of {', '.join(registry.names())}"])
        proven = subject(args.name, args.cloud_config, args.allow_writes, args.route_cidr, args.patience)
        asyncio.run(_prove(proven))
    except ConfigError as error:
        for problem in error.problems:
            print(f"ccm: {problem}", file=sys.stderr)
        return 2
    except CloudError as error:
        print(f"ccm: provider {args.name!r} cannot be started: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    try:
        results = asyncio.run(_run(chosen, proven))
    except KeyboardInterrupt:
        print("ccm: interrupted; what the case created is removed, unless a line says LEFT BEHIND", file=sys.stderr)
        return 1
    counts = {outcome: sum(result.outcome is outcome for result in results) for outcome in Outcome}
    print(f"\nprovider {proven.name!r}: " + ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items()))
    if counts[Outcome.NOT_RUN]:
        print(
            f"A pass says nothing about the {counts[Outcome.NOT_RUN]} cases that are not proven: run the kit in the "
            "provider's own tests, with a World (docs/providers/your-own.md)."
        )
    return 1 if counts[Outcome.FAILED] else 0


def subject(name: str, cloud_config: str | None, allow_writes: bool, route_cidr: str, patience: float) -> Subject:
    """Return the subject that the command line names. Raises ConfigError."""
    text, source = "", "(no --cloud-config)"
    if cloud_config:
        source = cloud_config
        try:
            text = Path(cloud_config).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ConfigError([f"cannot read --cloud-config {cloud_config}: {reason}"]) from None
    return Subject(
        name,
        registry.load(name),
        ProviderConfig(text, source),
        allow_writes=allow_writes,
        route_cidr=route_cidr,
        patience=patience,
    )


async def _prove(subject: Subject) -> None:
    """Start the provider once. Raises CloudError if it cannot be created or started, because then no case is
    meaningful."""
    cloud = registry.create(subject.name, subject.config)
    try:
        async with asyncio.timeout(cloud.limits.deadline):
            await cloud.start()
    except TimeoutError:
        raise Transient(f"no answer within {cloud.limits.deadline:g} s") from None
    except CloudError:
        raise
    except Exception as error:
        raise Transient(f"start raised {type(error).__name__}: {error}") from error
    finally:
        with contextlib.suppress(Exception):
            await cloud.close()


async def _run(cases: list[Case], subject: Subject) -> list[Result]:
    results = []
    width = max(len(case.name) for case in cases)
    for case in cases:
        result = await check(case, subject)
        results.append(result)
        print(f"{case.name:{width}}  {result.outcome.value:14}  {result.detail}".rstrip(), flush=True)
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ccm check-provider",
        description="Run the conformance kit against a provider and its cloud: one case per requirement for providers.",
        epilog="Without --allow-writes it only reads. Resources it creates are named ccm-conformance-... and removed.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="check this provider, as in --cloud-provider")
    parser.add_argument("--cloud-config", metavar="FILE", help="read the provider's configuration from this file")
    parser.add_argument("--allow-writes", action="store_true", help="create and delete load balancers and routes")
    parser.add_argument(
        "--case", default="*", metavar="PATTERN", help="run only cases whose names match, for example 'instances.*'"
    )
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument(
        "--route-cidr", default=Subject.route_cidr, type=_network, metavar="CIDR",
        help="create routes to this range, which must be free; default %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--patience", default=Subject.patience, type=_seconds, metavar="SECONDS",
        help="wait this many seconds for a load balancer; default %(default)g",
    )  # fmt: skip
    return parser


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text))


def _seconds(text: str) -> float:
    if not (value := float(text)) > 0:
        raise ValueError
    return value
