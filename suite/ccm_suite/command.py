# SPDX-License-Identifier: Apache-2.0
"""`ccm-suite run` and `ccm-suite list`. Exit status: 0 all passed or skipped, 1 something failed, 2 not finished."""

from __future__ import annotations

import argparse
import fnmatch
import functools
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from . import report
from .behaviour import Behaviour, Level, catalogue
from .cloud import Cloud
from .control_plane import ControlPlane, free_port
from .controller import Controller, command_of
from .errors import SuiteError
from .kube import MARK, NODES, UNANSWERED, Kube
from .report import Results
from .rights import grant
from .runner import Result, Run
from .trial import World
from .turn import Turn

GROUP = "ccm_suite.clouds"
#: The pod network, as the variable {cluster_cidr} of the controller's command.
CLUSTER_CIDR = "10.244.0.0/16"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that started processes are stopped
    try:
        status: int = options.command(options)
        return status
    except SuiteError as error:
        print(f"ccm-suite: {error}", file=sys.stderr)
        return 2
    except UNANSWERED as error:
        what = f"{type(error).__name__}: {error}"
        print(
            f"ccm-suite: the API server or the cloud does not answer ({what}); the same command goes on from here",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("ccm-suite: stopped; the same command goes on from here", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("ccm-suite", description="Checks a cloud-controller-manager from outside.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="all behaviours, with level and source")
    run = commands.add_parser("run", help="start a controller and check what it does")
    for each in (listing, run):
        each.add_argument(
            "--only", action="append", metavar="IDS", help="IDs with *, as in node.*; may be repeated (default: all)"
        )
        each.add_argument("--level", choices=[*Level], help="only this level")
    listing.set_defaults(command=_list)
    run.set_defaults(command=_run)
    run.add_argument("--name", default="controller", help="the controller's name in reports")
    run.add_argument(
        "--controller",
        required=True,
        help="the command that starts it. Names in braces are replaced: {kubeconfig}, {port} (its secure port), "
        "{cluster_cidr}, and those of the cloud's adapter",
    )
    run.add_argument(
        "--cloud", default="sim", help=f"the adapter: {', '.join(sorted(_clouds()))}, or MODULE:CLASS of one's own"
    )
    cluster = run.add_mutually_exclusive_group(required=True)
    cluster.add_argument("--kubeconfig", type=Path, help="a cluster without another controller of this cloud")
    cluster.add_argument("--binaries", type=Path, help="a folder with etcd and kube-apiserver, which it starts itself")
    run.add_argument("--lease", default=World.lease, help="the controller's Lease in kube-system (%(default)s)")
    run.add_argument(
        "--roles",
        type=Path,
        action="append",
        default=[],
        help="YAML with the vendor's ServiceAccount, roles and bindings; may be repeated. {kubeconfig} then belongs to "
        "that account (default: to the suite's user)",
    )
    run.add_argument("--foreign-nodes", action="store_true", help="allow a cluster that has Nodes already")
    run.add_argument("--patience", type=float, default=1.0, help="multiplies every time limit, for slow machines")
    run.add_argument(
        "--turn",
        type=Path,
        metavar="FILE",
        help="let runs on this machine that have the same file do their busiest part one after another",
    )
    run.add_argument(
        "--results", type=Path, default=Path("ccm-suite.json"), help="the results' file; .xml and .html go beside it"
    )
    run.add_argument("--again", action="store_true", help="forget the results that the file has")
    return parser


def _clouds() -> dict[str, metadata.EntryPoint]:
    return {each.name: each for each in metadata.entry_points(group=GROUP)}


def _cloud(name: str) -> Cloud:
    """Return an adapter. `name`: a known adapter's name, or MODULE:CLASS. Raises SuiteError."""
    known = _clouds()
    try:
        entry = metadata.EntryPoint(name, name, GROUP) if ":" in name else known[name]
        cloud: Cloud = entry.load()()
    except KeyError:
        raise SuiteError(f"--cloud {name}: no such adapter; there are {', '.join(sorted(known))}") from None
    except (ImportError, AttributeError, TypeError) as error:
        raise SuiteError(f"--cloud {name}: {error}") from error
    return cloud


def _chosen(options: argparse.Namespace) -> dict[str, Behaviour]:
    """Return the chosen behaviours. Raises SuiteError if there are none, or if a pattern matches none, because an empty
    run must not count as a success."""
    patterns, known = options.only or ["*"], catalogue()
    if unknown := [each for each in patterns if not fnmatch.filter(known, each)]:
        raise SuiteError(f"--only {unknown[0]}: no behaviour has such an ID; `ccm-suite list` shows them")
    chosen = {
        id: each
        for id, each in known.items()
        if any(fnmatch.fnmatchcase(id, pattern) for pattern in patterns) and options.level in (None, each.level)
    }
    if not chosen:
        raise SuiteError(f"--level {options.level}: none of the chosen behaviours has this level")
    return chosen


def _list(options: argparse.Namespace) -> int:
    for each in _chosen(options).values():
        print(f"{each.id:34} {each.level:6} {each.when:15} {each.sentence} <{each.source}>")
    return 0


def _run(options: argparse.Namespace) -> int:
    chosen = _chosen(options)
    cloud = _cloud(options.cloud)
    _prepare(options.results)
    results = Results(options.results, options.name)
    if not options.again:
        results.resume()
    try:
        turn = Turn(options.turn)
    except OSError as error:
        raise SuiteError(f"--turn {options.turn}: {error.strerror}") from error
    left = [each for each in chosen.values() if each.id not in results.by_id]
    if left:
        with tempfile.TemporaryDirectory(prefix="ccm-suite-") as folder:
            _try(options, cloud, left, results, Path(folder), turn)
    options.results.with_suffix(".xml").write_text(report.junit(results, catalogue()))
    options.results.with_suffix(".html").write_text(report.page(results, catalogue()))
    counts = results.counts()
    print(f"{options.name}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["failed"] else 0


def _prepare(results: Path) -> None:
    """Create the folder of the results. Raises SuiteError if they cannot be written."""
    try:
        results.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SuiteError(f"--results {results}: {error.strerror}") from error
    if results.is_dir() or not os.access(results.parent, os.W_OK):
        why = "it is a folder" if results.is_dir() else f"no file can be created in {results.parent}"
        raise SuiteError(f"--results {results}: {why}")


def _try(
    options: argparse.Namespace,
    cloud: Cloud,
    behaviours: Sequence[Behaviour],
    results: Results,
    folder: Path,
    turn: Turn,
) -> None:
    control_plane: ControlPlane | None = None
    controllers: list[Controller] = []
    try:
        if options.binaries:
            control_plane = ControlPlane(options.binaries, folder, audited=bool(options.roles))
        kubeconfig = control_plane.kubeconfig if control_plane else options.kubeconfig
        kube = Kube(kubeconfig)
        _refuse_cluster_in_use(kube, options)
        rights = None
        if options.roles:
            audit = control_plane.audit if control_plane else None
            rights, kubeconfig = grant(options.roles, kube, kubeconfig, folder, audit)
        settings = cloud.start(folder)
        world = World(kube, cloud, secrets.token_hex(3), options.patience, options.lease, settings, rights)
        for number in range(2):
            known = {"kubeconfig": str(kubeconfig), "port": str(free_port()), "cluster_cidr": CLUSTER_CIDR}
            command = command_of(options.controller, {**known, **settings.variables})
            log = options.results.with_suffix(f".{number}.log")
            log.write_bytes(b"")
            controllers.append(Controller(command, settings.environment, log))
        began = time.monotonic()
        one_at_a_time = threading.Lock()
        total = len(behaviours) + len(results.by_id)

        def done(result: Result) -> None:  # from several threads
            with one_at_a_time:
                results.add(result)
                progress = f"[{len(results.by_id)}/{total}, {time.monotonic() - began:.0f} s]"
                print(f"{progress:15} {result.outcome:8} {result.id}  {result.reason}".rstrip(), flush=True)

        print(f"{len(behaviours)} behaviours of {options.name}", flush=True)
        say = functools.partial(print, flush=True)
        Run(world, controllers[0], controllers[1], control_plane, say, turn).all(behaviours, done)
    finally:
        for controller in controllers:
            controller.stop()
        cloud.stop()
        if control_plane is not None:
            control_plane.close()


def _refuse_cluster_in_use(kube: Kube, options: argparse.Namespace) -> None:
    """Raise SuiteError if the cluster does not answer, or has Nodes of others and --foreign-nodes is not set."""
    try:
        nodes = kube.list(NODES)
    except UNANSWERED as error:
        raise SuiteError(f"the API server does not answer: {error}") from error
    foreign = [node["metadata"]["name"] for node in nodes if MARK not in node["metadata"].get("labels", {})]
    if foreign and not options.foreign_nodes:
        shown = ", ".join(foreign[:3])
        raise SuiteError(
            f"the cluster has {len(foreign)} Node(s) that this suite did not create ({shown}): the controller under "
            "test may delete them. Take an empty cluster, or allow it with --foreign-nodes"
        )
