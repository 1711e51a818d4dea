# SPDX-License-Identifier: Apache-2.0
"""Runs Kubernetes' own end-to-end specs on a cluster of the test bed, after its migration (`make test-e2e`).

It starts a cluster as `make demo` does, migrates it, installs cluster DNS and agnhost, runs the specs from outside the
cluster, and removes everything. The modes `conformance` and `dual-stack` install both before the migration, and run
specs before it, after it, and after the rollback. In the mode `openstack`, OpenStack's services are the cloud, and the
specs run with this project's runtime, and then with cloud-provider-openstack. The client of the specs is in another
network than the nodes: if its address were near theirs, the specs would think that client addresses are not preserved.
The spec about Nodes deletes an instance of the simulated cloud; this command then stops the machine of that instance.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/bed"))

from bed import binaries, cluster, go_programs, images, machines, paths, plan, prerequisites, versions  # noqa: E402
from bed.errors import BedError  # noqa: E402
from bed.machines import LABEL, on, podman  # noqa: E402
from bed.progress import Progress, Step  # noqa: E402
from bed.run import in_parallel, run  # noqa: E402
from tools.e2e import openstack, page, results  # noqa: E402

#: The clients' addresses, in a network that is reserved for documentation (RFC 5737). Specs in different clients run at
#: the same time.
CLIENTS = ("203.0.113.7", "203.0.113.8", "203.0.113.9")
NAME = "e2e"
#: Slow specs: each makes five rolling updates of Pods that take a minute to stop, and waits most of the time.
SLOW = "rolling update"
POLICIES = ("Cluster", "Local")
MIGRATE, ROLL_BACK = "site.yml", "playbooks/rollback.yml"
#: The modes, with the columns of their results. Each column has the playbooks that come before its specs.
MODES: dict[str, dict[str, tuple[str, ...]]] = {
    "pass-through": {"pass-through": (MIGRATE,)},
    "proxy": {"proxy": (MIGRATE,)},
    "conformance": {"before": (), "migrated": (MIGRATE,), "rolled-back": (ROLL_BACK,)},
    "dual-stack": {
        "dual-stack-before": (),
        "dual-stack-migrated": (MIGRATE,),
        "dual-stack-rolled-back": (ROLL_BACK,),
    },
    "openstack": {"openstack-ours": (MIGRATE,), "openstack-theirs": (ROLL_BACK, MIGRATE)},
}
#: Mode -> the label filter of its specs of SIG Network, and patterns of names. Each pattern's specs run in a client of
#: their own, and the rest in one more.
GROUPS = {
    "conformance": ("Conformance && !Serial && !Disruptive", ("Services", "EndpointSlice|Endpoints")),
    "dual-stack": (
        "Feature: containsAny IPv6DualStack",
        (".*(pod-Service|node-Service|session affinity)", ".*(endpoint-Service|update endpoints)"),
    ),
}
#: Specs that cannot pass in a mode: a proxy connects to node ports, specs of DNS need an image that the bed lacks, and
#: SCTP needs a module of the machine's kernel.
IMPOSSIBLE = {
    "proxy": ["without NodePort"],
    "conformance": [r"\[sig-network\] DNS"],
    "dual-stack": ["sctp"],
    "openstack": ["without NodePort"],
}
SECONDS = 7200
AGNHOST, PAUSE = "/e2e-test-images/agnhost:", "/pause:"
_CLIENT_START = """\
set -e
ip address add {client}/32 dev eth0
ip route flush default
ip route add default via {gateway} src {client}
ip route replace {subnet} dev eth0 src {client}
exec "$@"
"""


@dataclass(frozen=True)
class Part:
    """Specs that a client runs one after another: those with Ginkgo's `labels` whose names match `only`, and not
    `without`. `prefix`: how the names of the client's files in the report begin. `deletes`: whether the specs delete
    instances.
    """

    title: str
    labels: str
    prefix: str = ""
    only: str = ""
    without: str = ""
    deletes: bool = False


def rounds(options: argparse.Namespace) -> list[list[Part]]:
    """Return lists of parts that run at the same time, one list after another. Specs that delete an instance, whose
    machine is then stopped, are in the last list.
    """
    if options.mode in GROUPS:
        return [_in_groups(options)]
    balancers = Part("load balancers", "Feature: containsAny LoadBalancer", only=options.focus)
    nodes = Part("Nodes", "Feature: containsAny CloudProvider", "nodes_", only=options.focus, deletes=True)
    last = [] if options.mode == "openstack" else [[nodes]]  # the spec deletes instances of the simulated cloud
    if options.focus and not options.quick:
        return [[balancers], *last]
    slow = [
        replace(balancers, title=f"{SLOW}, {policy}", prefix=f"rolling_{policy.lower()}_", only=f"{SLOW}.*{policy}")
        for policy in POLICIES
    ]
    return [[replace(balancers, without=SLOW), *([] if options.quick else slow)], *last]


def _in_groups(options: argparse.Namespace) -> list[Part]:
    labels, groups = GROUPS[options.mode]
    every = Part(options.mode, labels, only=options.focus)
    if options.focus:
        return [every]
    network, title = r"\[sig-network\]", r"\[sig-network\] ({})"
    parts = [
        replace(every, title=names, prefix=f"group_{number}_", only=title.format(names))
        for number, names in enumerate(groups)
    ]
    return [replace(every, title="others", only=network, without=title.format("|".join(groups))), *parts]


def main(arguments: list[str]) -> int:
    """Return 0 if every spec passed, or skipped itself in the mode `proxy`; else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.e2e", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--mode", choices=MODES, default="pass-through", help="what runs")
    parser.add_argument("--focus", default="", metavar="REGEXP", help="only specs whose names match")
    parser.add_argument(
        "--quick", action="store_true", help="leave out both rolling updates, which take ten minutes each"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster as it is afterwards")
    parser.add_argument("--record", action="store_true", help="keep the results for the table of docs/testing.md")
    options = parser.parse_args(arguments)
    if options.record and (options.focus or options.quick):
        parser.error("--record is for a run of all specs: give neither --focus nor --quick")
    progress = Progress()
    try:
        prerequisites.need_root("raising a cluster")
        found = run_on_new_cluster(options, progress)
    except BedError as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1
    for column, seen in found.items():
        print(f"{column}:\n{results.table(seen)}")
        if options.record:
            progress.say(f"Recorded in {page.record(column, seen).relative_to(ROOT)}: `make docs` writes the table")
    return 0 if all(results.is_success(seen, may_skip=options.mode == "proxy") for seen in found.values()) else 1


def run_on_new_cluster(options: argparse.Namespace, progress: Progress) -> dict[str, list[results.Result]]:
    """Return the results by column, see MODES."""
    program = go_programs.ensure("e2e", progress)
    archives = [images.ensure_agnhost(image_of(program, AGNHOST), progress), images.ensure_dns(progress)]
    version = versions.find(versions.DEFAULT)
    on_openstack = options.mode == "openstack"
    wanted = plan.make(
        NAME,
        version.kubernetes,
        leftovers=True,
        cloud=not on_openstack,
        dual_stack=options.mode == "dual-stack",
        pass_through=options.mode in ("pass-through", "conformance"),
    )
    remove(on_openstack, progress)
    try:
        bed = cluster.up(wanted, progress)
        if on_openstack:
            openstack.start(bed)
        found = dict[str, list[results.Result]]()
        for column, playbooks in MODES[options.mode].items():
            report = paths.BUILD / "e2e" / column
            shutil.rmtree(report, ignore_errors=True)
            report.mkdir(parents=True)
            variables = [openstack.variables(bed, column, progress)] if on_openstack else []
            for playbook in playbooks:
                play(bed, playbook, variables, report / "playbook.log", progress)
            if not playbooks:
                cluster.add_routes(bed)  # as an old integration does: without routes, Pods reach only their own node
            if not found:
                prepare(bed, archives, image_of(program, PAUSE), progress)
            found[column] = run_specs(bed, program, report, options, progress)
        return found
    finally:
        if options.keep:
            progress.say(f"The cluster stays: `bed down --name {NAME}` removes it")
        else:
            remove(on_openstack, progress)


def remove(on_openstack: bool, progress: Progress) -> None:
    """Remove the cluster, and the OpenStack services if they are its cloud."""
    if on_openstack:
        openstack.stop()
    cluster.down(NAME, False, progress)


def image_of(program: Path, part: str) -> str:
    """Return the newest image of the specs that has this part in its name. Raises BedError if there is none."""
    names = [line.strip() for line in run(str(program), "--list-images").splitlines() if part in line]
    newest = [name for name in names if "private" not in name]
    if not newest:
        raise BedError(f"{program} --list-images names no image with {part}")
    return max(newest, key=lambda name: [int(number) for number in name.rpartition(":")[2].split(".")])


def play(bed: cluster.Bed, playbook: str, variables: list[Path], log: Path, progress: Progress) -> None:
    """Run a playbook, with the variables of these files."""
    with progress.step(f"ansible-playbook {playbook}"), log.open("a") as out:
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(bed.folder / "inventory.yml")]
        command += [f"--extra-vars=@{file}" for file in variables]
        done = subprocess.run([*command, playbook], cwd=ROOT, stdout=out, stderr=out, timeout=1800, check=False)
    if done.returncode:
        raise BedError(f"{playbook} failed: see {log}")


def prepare(bed: cluster.Bed, archives: list[Path], pause: str, progress: Progress) -> None:
    """Load the images on every node, and start cluster DNS, which resolves names of Services. `pause`: the name under
    which the specs request the pause image, which the bed has under another name."""
    tag = ("ctr", "--namespace=k8s.io", "images", "tag", images.PAUSE_IMAGE, pause)
    with progress.step("agnhost and CoreDNS on every machine"):
        in_parallel(lambda node: machines.load_images(node, archives), bed.plan.nodes)
        in_parallel(lambda node: on(node.name, *tag), bed.plan.nodes)
    with progress.step("Cluster DNS"):
        cluster.kubectl(bed, "apply", "--filename", str(ROOT / "tools/e2e/dns.yaml"))
        cluster.kubectl(bed, "--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")


def run_specs(
    bed: cluster.Bed, program: Path, report: Path, options: argparse.Namespace, progress: Progress
) -> list[results.Result]:
    """Run the specs and return their results. The whole output goes to the report's folder."""
    for client, address in enumerate(CLIENTS):
        on(bed.plan.gateway_name, "ip", "route", "replace", f"{address}/32", "via", client_address(bed.plan, client))
    file = report / "results.jsonl"
    file.touch()
    for parts in rounds(options):
        with progress.step(f"Specs of {'; '.join(part.title for part in parts)}, {report.name}") as step:
            run_at_once(bed, program, report, options, parts, step)
    if not (found := results.read(file.read_text().splitlines())):
        raise BedError(f"no spec ran: see {report}/specs.log")
    return found


def run_at_once(
    bed: cluster.Bed, program: Path, report: Path, options: argparse.Namespace, parts: list[Part], step: Step
) -> None:
    """Run each part in a client of its own, and wait for all. Raises BedError if a client fails although no spec of the
    whole run, including earlier rounds, has failed.
    """
    file = report / "results.jsonl"
    with ExitStack() as stack:
        processes = []
        for client, part in enumerate(parts):
            out = stack.enter_context((report / f"{part.prefix}specs.log").open("w"))
            command = client_command(bed, program, report, part, client, options)
            processes.append(subprocess.Popen(command, stdout=out, stderr=out))

        def ended() -> bool:
            step.detail = results.summary(results.read(file.read_text().splitlines()))
            if any(part.deletes for part in parts):
                end_deleted_machines(bed, lambda name: cluster.node_remove(NAME, name, Progress()))
            return all(process.poll() is not None for process in processes)

        try:
            machines.wait_until(ended, "the end of the specs", SECONDS, pause=2)
        finally:
            for client, process in enumerate(processes):
                podman("rm", "--force", client_name(client), check=False)
                process.wait(60)
    failed = results.failures(results.read(file.read_text().splitlines()))
    for part, process in zip(parts, processes, strict=True):
        if process.returncode and not failed:
            log = report / f"{part.prefix}specs.log"
            raise BedError(f"the specs of {part.title} ended with {process.returncode}, and none failed: see {log}")


def end_deleted_machines(bed: cluster.Bed, end: Callable[[str], None]) -> None:
    """Stop the machines whose instances the cloud no longer has."""
    instances = cluster.instances(bed.plan)
    for node in [node for node in bed.plan.workers if node.name not in instances]:
        bed.plan.nodes.remove(node)
        end(node.name)


def client_address(wanted: plan.Plan, client: int) -> str:
    """Return the client's address in the bed, apart from those of nodes and load balancers."""
    return wanted.host(252 + client)


def client_name(client: int) -> str:
    return f"{NAME}-client-{client}"


def client_command(
    bed: cluster.Bed, program: Path, report: Path, part: Part, client: int, options: argparse.Namespace
) -> list[str]:
    """Return the command of a client's container. The container has the bed's label, so it is removed with the bed."""
    wanted = bed.plan
    start = _CLIENT_START.format(client=CLIENTS[client], gateway=wanted.gateway, subnet=wanted.subnet)
    kubectl = binaries.ensure(bed.version, Progress()) / "kubectl"
    mounts = {program: "/e2e", kubectl: "/usr/local/bin/kubectl", bed.kubeconfig: "/kubeconfig"}
    volumes = [word for file, place in mounts.items() for word in ("--volume", f"{file}:{place}:ro")]
    return [
        "podman", "--runtime", "runc", "run", "--rm", "--name", client_name(client),
        "--label", f"{LABEL}={wanted.name}", "--network", wanted.network, "--ip", client_address(wanted, client),
        "--user", "0", "--privileged",
        "--http-proxy=false", *machines.limits(), *volumes, "--volume", f"{report}:/report",
        "--entrypoint", "sh", images.PYTHON_IMAGE, "-c", start, "client",
        *spec_command(part, options), f"--cloud-url={wanted.cloud_url}", f"--cloud-token={plan.CLOUD_TOKEN}",
    ]  # fmt: skip


def spec_command(part: Part, options: argparse.Namespace) -> list[str]:
    chosen = [f"--ginkgo.focus={part.only}"] if part.only else []
    left_out = [*IMPOSSIBLE.get(options.mode, []), *([part.without] if part.without else [])]
    chosen += [f"--ginkgo.skip={name}" for name in left_out]
    return [
        "/e2e", "--provider=sim", "--kubeconfig=/kubeconfig", "--kubectl-path=/usr/local/bin/kubectl",
        "--allowed-not-ready-nodes=1", "--disable-log-dump", f"--ginkgo.label-filter={part.labels}",
        f"--ginkgo.timeout={SECONDS}s", "--ginkgo.no-color", "--ginkgo.v", *chosen,
        "--report-dir=/report", f"--report-prefix={part.prefix}", "--results=/report/results.jsonl",
    ]  # fmt: skip


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
