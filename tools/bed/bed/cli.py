# SPDX-License-Identifier: Apache-2.0
"""The commands."""

from __future__ import annotations

import argparse
import sys

from bed import binaries, cluster, go_programs, images, machines, moto, plan, prerequisites, versions
from bed.errors import BedError
from bed.progress import Progress
from bed.systems import SYSTEMS


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="bed", description="Real kubeadm clusters in containers of this machine.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, named: bool = False, versioned: bool = False) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if named:
            sub.add_argument("--name", default="demo", help="which bed (default: demo)")
        if versioned:
            sub.add_argument("--version", default=versions.DEFAULT, help="Kubernetes (default: %(default)s)")
        return sub

    command("prerequisites", "install what the machine lacks (as root), or say how")
    command("binaries", "obtain the Kubernetes binaries and print their folder", versioned=True)
    sub = command("images", "make every image that a bed needs", versioned=True)
    sub.add_argument(
        "--only", metavar="IMAGE", help="only this image, or vendor-NAME: another cloud-controller-manager"
    )
    sub = command("program", "compile a Go program that tests run, and print its path")
    sub.add_argument("program", metavar="PROGRAM", choices=go_programs.PROGRAMS, help=", ".join(go_programs.PROGRAMS))
    command("moto", "install moto for a bed's gateway, and print the folder of its packages")

    sub = command("up", "start a cluster without cloud integration, and its cloud", named=True, versioned=True)
    sub.add_argument("--control-planes", type=int, default=1, metavar="N", help="1, 3 or 5 (default: 1)")
    sub.add_argument("--workers", type=int, default=2, metavar="N", help="default: 2")
    sub.add_argument("--subnet", help="a private /24 (default: by the name)")
    sub.add_argument("--leftovers", action="store_true", help="add what in-tree clouds leave behind")
    sub.add_argument("--serving-certs", action="store_true", help="kubelets ask the cluster for serving certificates")
    sub.add_argument("--no-cloud", action="store_true", help="a gateway without the simulated cloud")
    sub.add_argument("--domain", default="", help="name machines ip-ADDRESS.DOMAIN, as EC2 does")
    sub.add_argument("--hard-way", action="store_true", help="all components are systemd units, without kubeadm")
    sub.add_argument("--external-etcd", action="store_true", help="etcd is a systemd unit, which kubeadm does not know")
    sub.add_argument("--kubespray", action="store_true", help="files, units and accounts are those of kubespray")
    sub.add_argument(
        "--systems", default="", metavar="SYSTEM,...", help=f"the systems of the first machines: {', '.join(SYSTEMS)}"
    )
    sub.add_argument("--dual-stack", action="store_true", help="addresses of IPv4 and IPv6 everywhere")
    sub.add_argument("--pass-through", action="store_true", help="the cloud's load balancers are no proxies")

    sub = command("down", "remove a bed, even an incomplete one", named=True)
    sub.add_argument("--purge", action="store_true", help="remove images and the cache too")
    sub = command("node-join", "add a worker to a bed", named=True)
    sub.add_argument("node", metavar="NODE", help="the new node's name")
    sub.add_argument("--external", action="store_true", help="its kubelet has --cloud-provider=external")
    sub = command("node-remove", "kill a worker's machine", named=True)
    sub.add_argument("node", metavar="NODE", help="the worker's name")
    sub = command("install", "put binaries of another release on every machine of a bed", named=True, versioned=True)
    sub.add_argument("binaries", nargs="+", metavar="BINARY", choices=machines.NODE_BINARIES, help="such as kubeadm")
    command("status", "show containers, nodes and Pods", named=True)
    command("logs", "collect the logs of all machines and print their folder", named=True)
    return top


def main(arguments: list[str]) -> int:
    """Run a command and return the exit code: 0, 1 if the bed could not do it, 130 when interrupted."""
    args = parser().parse_args(arguments)
    try:
        _run(args, Progress())
    except BedError as error:
        print(f"bed {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"bed {args.command}: interrupted; `bed down` removes what there is", file=sys.stderr)
        return 130
    return 0


def _run(args: argparse.Namespace, progress: Progress) -> None:
    if args.command == "prerequisites":
        prerequisites.ensure(progress)
        progress.say("Everything is there.")
    elif args.command == "binaries":
        print(binaries.ensure(versions.find(args.version), progress))
    elif args.command == "images":
        prerequisites.need_root("making images")
        version = versions.find(args.version)
        images.ensure_all(version, progress, args.only)
    elif args.command == "program":
        print(go_programs.ensure(args.program, progress))
    elif args.command == "moto":
        print(moto.ensure(progress))
    elif args.command == "up":
        kubernetes = versions.find(args.version).kubernetes
        wanted = plan.make(
            args.name,
            kubernetes,
            args.control_planes,
            args.workers,
            args.subnet,
            args.leftovers,
            not args.no_cloud,
            args.serving_certs,
            args.domain,
            args.hard_way,
            args.external_etcd,
            args.kubespray,
            args.dual_stack,
            tuple(filter(None, args.systems.split(","))),
            args.pass_through,
        )
        bed = cluster.up(wanted, progress)
        print(f"export KUBECONFIG={bed.kubeconfig}")
    elif args.command == "down":
        plan.check_name(args.name, "bed")
        cluster.down(args.name, args.purge, progress)
    elif args.command == "node-join":
        cluster.node_join(args.name, args.node, args.external, progress)
    elif args.command == "node-remove":
        cluster.node_remove(args.name, args.node, progress)
    elif args.command == "install":
        cluster.install(args.name, versions.find(args.version), args.binaries, progress)
    elif args.command == "status":
        print(cluster.status(args.name))
    elif args.command == "logs":
        print(cluster.logs(args.name))
