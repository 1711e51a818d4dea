# SPDX-License-Identifier: Apache-2.0
"""The commands of `python3 -m rig`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bed import locks
from bed.errors import BedError
from bed.progress import Progress
from rig import clones, stack


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="rig", description="Real OpenStack services on loopback.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    sub = commands.add_parser("up", help="start what does not run yet")
    sub.add_argument("--port", type=int, metavar="BASE", help="the first of 20 ports (default: a free block)")
    sub.add_argument("--no-compute", action="store_true", help="keystone, neutron and octavia only")
    sub.add_argument("--bed", default="", help="be the cloud of this bed, which was started with --no-cloud")
    sub = commands.add_parser("down", help="stop everything and remove its data")
    sub.add_argument("--purge", action="store_true", help="remove the rig's files in the cache, too")
    commands.add_parser("status", help="what runs, and where")
    sub = commands.add_parser("clone", help="copy a server many times, as rows in the databases")
    sub.add_argument("server", help="the ID of the server to copy")
    sub.add_argument("count", type=int)
    sub.add_argument("prefix", help="what the copies' names begin with")
    sub.add_argument("first", help="the first copy's address")
    sub = commands.add_parser("clone-balancer", help="copy a load balancer many times, as rows in the databases")
    sub.add_argument("balancer", help="the ID of the load balancer to copy")
    sub.add_argument("copies", type=Path, help="a JSON list: name, description, tags, floating_description of each")
    sub.add_argument("vip", help="the first copy's VIP")
    sub.add_argument("first", help="the first copy's floating address")
    sub = commands.add_parser("forget", help="remove the copies")
    sub.add_argument("prefix", help="what the copies' names begin with")
    return top


def main(arguments: list[str]) -> int:
    """Run a command and return the exit code: 0, 1 if it could not be done, 130 when interrupted."""
    args = parser().parse_args(arguments)
    try:
        with locks.held("openstack"):
            _run(args, Progress())
    except BedError as error:
        print(f"rig {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"rig {args.command}: interrupted; `make openstack-down` removes what there is", file=sys.stderr)
        return 130
    return 0


def _run(args: argparse.Namespace, progress: Progress) -> None:
    if args.command == "up":
        if args.bed and args.no_compute:
            raise BedError("--bed requires servers: omit --no-compute")
        stack.up(args.port, not args.no_compute, progress, args.bed)
    elif args.command == "down":
        stack.down(args.purge, progress)
    elif args.command == "clone":
        clones.make(stack.running_database(), args.server, args.count, args.prefix, args.first)
    elif args.command == "clone-balancer":
        copies = json.loads(args.copies.read_text())
        clones.make_balancers(stack.running_database(), args.balancer, copies, args.vip, args.first)
    elif args.command == "forget":
        clones.remove(stack.running_database(), args.prefix)
    else:
        print(stack.status())
