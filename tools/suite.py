# SPDX-License-Identifier: Apache-2.0
"""`make ccm-suite`: runs the suite against controllers that can be started here, and writes a page that compares them.

CONTROLLERS="ours" runs only the controller of that name; an interrupted run goes on where it stopped. The figures are
docs/suite/NAME.json.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml
from ccm_suite import report
from ccm_suite.behaviour import catalogue
from ccm_suite.errors import SuiteError
from ccm_suite.report import Results

from bed import go_programs, golang, paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run as run_command
from tests.integration.cluster import MissingBinaries, binaries
from tests.unit.ccm_runtime_role import rendered

#: Held while a thread renders a template: Ansible loads its plugins once for all threads, and without protection.
_TEMPLATES = threading.Lock()
#: Held while a thread starts OpenStack's services, which two controllers use.
_SERVICES = threading.Lock()
KEPT = paths.REPOSITORY / "docs" / "suite"
PAGE = paths.REPOSITORY / "docs" / "reference" / "suite.md"
RAW = paths.REPOSITORY / "build" / "suite"

#: Upstream's flags, which both controllers of the cloud `sim` have.
FLAGS = (
    "--cloud-provider=sim --cloud-config={cloud_config} --kubeconfig={kubeconfig} --bind-address=127.0.0.1 "
    "--secure-port={port} --cluster-cidr={cluster_cidr} --allocate-node-cidrs --configure-cloud-routes"
)


@dataclass(frozen=True)
class Controller:
    """A controller under test. `title`: its title in the table. `command`: returns the command line for the suite, and
    may build something first. `roles`: returns the vendor's files with its ServiceAccount and roles. `patience`: a
    factor for stand-ins that are slower than the cloud."""

    title: str
    cloud: str
    command: Callable[[], str]
    roles: Callable[[], Sequence[Path]]
    patience: float = 1.0


def _our_roles() -> Sequence[Path]:
    """Return the roles that the Ansible role grants."""
    file = RAW / "roles-of-ours.yaml"
    file.write_text(yaml.safe_dump_all(rendered("rbac.yaml.j2")))
    return [file]


#: The roles of upstream's example, https://kubernetes.io/docs/tasks/administer-cluster/running-cloud-controller/
_UPSTREAM_ROLES = """
{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ccm", "namespace": "kube-system"}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:ccm"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: ccm, namespace: kube-system}]
"""


def _upstream_roles() -> Sequence[Path]:
    file = RAW / "roles-of-upstream.yaml"
    file.write_text(_UPSTREAM_ROLES)
    return [file]


def _roles_of(program: str, *patterns: str) -> Callable[[], Sequence[Path]]:
    """Return a function that returns files of a vendor's released Go module."""

    def files() -> Sequence[Path]:
        built = go_programs.PROGRAMS[program]
        name = built.package.partition("/cmd/")[0]
        listed = run_command(str(golang.ensure(Progress())), "list", "-m", "-f={{.Dir}}", name, cwd=str(built.module))
        return [file for pattern in patterns for file in sorted(Path(listed.strip()).glob(pattern))]

    return files


_AWS_ROLES = _roles_of("aws-cloud-controller-manager", "examples/existing-cluster/base/*r*.yaml")
_OPENSTACK_ROLES = _roles_of("openstack-cloud-controller-manager", "manifests/controller-manager/*r*-*s.yaml")
_VSPHERE_ROLES = _roles_of("vsphere-cloud-controller-manager", "releases/v1.36/*.yaml")


def _upstream() -> str:
    program = go_programs.ensure("peer", Progress())
    return f"{program} {FLAGS} --authentication-skip-lookup --webhook-secure-port=0"


AWS_FLAGS = (
    "--cloud-provider=aws --cloud-config={cloud_config} --kubeconfig={kubeconfig} --bind-address=127.0.0.1 "
    "--secure-port={port} --cluster-cidr={cluster_cidr} --allocate-node-cidrs --configure-cloud-routes "
    "--cluster-name={cluster}"
)


def _cloud_provider_aws() -> str:
    program = go_programs.ensure("aws-cloud-controller-manager", Progress())
    return f"{program} {AWS_FLAGS} --authentication-skip-lookup --webhook-secure-port=0"


OPENSTACK_FLAGS = (
    "--cloud-provider=openstack --cloud-config={cloud_config} --kubeconfig={kubeconfig} --bind-address=127.0.0.1 "
    "--secure-port={port} --cluster-cidr={cluster_cidr} --allocate-node-cidrs --configure-cloud-routes "
    "--cluster-name={cluster}"
)
VSPHERE_FLAGS = (
    "--cloud-provider=vsphere --cloud-config={cloud_config} --kubeconfig={kubeconfig} --bind-address=127.0.0.1 "
    "--secure-port={port}"
)


def _on_openstack(command: Callable[[], str]) -> Callable[[], str]:
    """Return a function that starts OpenStack's services and then calls `command`. The services run until
    `make openstack-down`."""

    def prepared() -> str:
        with _SERVICES:
            if subprocess.run([sys.executable, "-m", "rig", "up"], check=False).returncode:
                raise SuiteError("the OpenStack services do not start")
        return command()

    return prepared


def _cloud_provider_openstack() -> str:
    program = go_programs.ensure("openstack-cloud-controller-manager", Progress())
    return f"{program} {OPENSTACK_FLAGS} --authentication-skip-lookup --webhook-secure-port=0"


def _cloud_provider_vsphere() -> str:
    program = go_programs.ensure("vsphere-cloud-controller-manager", Progress())
    return f"{program} {VSPHERE_FLAGS} --authentication-skip-lookup --webhook-secure-port=0"


CONTROLLERS = {
    # By default our controller deletes no Node that is younger than five minutes, as all Nodes of the suite are.
    "ours": Controller(
        "outoftree.ccm, `sim`, with `--node-deletion-min-age=20s`",
        "sim",
        lambda: f"{sys.executable} -m ccm.cli {FLAGS} --node-deletion-min-age=20s",
        _our_roles,
    ),
    "upstream": Controller(
        "upstream's framework, with a thin provider of the simulated cloud", "sim", _upstream, _upstream_roles
    ),
    "ours-aws": Controller(
        "outoftree.ccm, `aws`, on moto, with `--node-deletion-min-age=20s`",
        "tests.clouds.aws.suite_cloud:AwsAccount",
        lambda: f"{sys.executable} -m ccm.cli {AWS_FLAGS} --node-deletion-min-age=20s",
        _our_roles,
        patience=3,
    ),
    "cloud-provider-aws": Controller(
        "cloud-provider-aws, on moto",
        "tests.clouds.aws.suite_cloud:AwsAccount",
        _cloud_provider_aws,
        _AWS_ROLES,
        patience=3,
    ),
    "ours-openstack": Controller(
        "outoftree.ccm, `openstack`, on OpenStack's services, with `--node-deletion-min-age=20s`",
        "tests.clouds.openstack.suite_cloud:OpenStack",
        _on_openstack(lambda: f"{sys.executable} -m ccm.cli {OPENSTACK_FLAGS} --node-deletion-min-age=20s"),
        _our_roles,
        patience=3,
    ),
    "cloud-provider-openstack": Controller(
        "cloud-provider-openstack, on OpenStack's services",
        "tests.clouds.openstack.suite_cloud:OpenStack",
        _on_openstack(_cloud_provider_openstack),
        _OPENSTACK_ROLES,
        patience=3,
    ),
    "ours-vsphere": Controller(
        "outoftree.ccm, `vsphere`, on vcsim, with `--node-deletion-min-age=20s`",
        "tests.clouds.vsphere.suite_cloud:VSphere",
        lambda: f"{sys.executable} -m ccm.cli {VSPHERE_FLAGS} --node-deletion-min-age=20s",
        _our_roles,
        patience=2,
    ),
    "cloud-provider-vsphere": Controller(
        "cloud-provider-vsphere, on vcsim",
        "tests.clouds.vsphere.suite_cloud:VSphere",
        _cloud_provider_vsphere,
        _VSPHERE_ROLES,
        patience=2,
    ),
}

INTRODUCTION = """# Controllers held to the suite

<!-- Made by `make docs` from docs/suite/*.json; do not edit. -->

The results of [`ccm-suite`](../how-to/ccm-suite.md). *yes*: the controller behaves as the sentence says. **no**: it did
something else within the time limit of the behaviour. *not asked*: the cloud or its adapter cannot do what the
behaviour needs. An empty cell: the behaviour was added after the last run. The list counts the *yes* among all
behaviours. `make ccm-suite CONTROLLERS=NAME AGAIN=1`, or one command on the page of the suite, makes a column again.

A fault breaks every call of the controller, and none of the adapter. Those with `listing` in their names break only the
calls that list machines. The controller runs with the roles of its vendor's files; `upstream` has those of upstream's
example. What failed beside others, and then passed beside two at most, is *yes*. A controller's minutes include
those in which it waited for its turn, and for others on the same two cores. `balancer.members-after-refusal` and
`balancer.refusal-over` break only the calls that create or change listeners; on AWS, they also break those for target
groups, and in the simulated cloud, they break changes of a load balancer. Two clouds refuse with errors of their own:
AWS has `AuthFailure` for 401, `UnauthorizedOperation` for 403 and `RequestLimitExceeded` for 429, and vCenter has
`NotAuthenticated` for 401 and `NoPermission` for 403.

"""

FIGURES = """
## Figures

Each is one measurement, on two cores beside other work, so small differences mean nothing. Our controller asks the
cloud twice before it deletes a Node, deletes none that is younger than 20 s here, and within three minutes no more than
a tenth of all Nodes, whichever behaviour they belong to. So `machine.five` of ours takes 24 s if it runs alone.

"""
SEEN = """
## What was seen instead

"""

_AWS = "https://github.com/kubernetes/cloud-provider-aws/blob/v1.37.1/pkg/providers/v1"
_OPENSTACK_ID = (
    "The ID of the load balancer that is gone stays in an annotation of the Service, and no new one is created as long "
    "as that ID leads nowhere "
    "([cloud-provider-openstack#2751](https://github.com/kubernetes/cloud-provider-openstack/issues/2751))."
)
_CLUSTER_ADMIN = (
    "[Upstream's example](https://kubernetes.io/docs/tasks/administer-cluster/running-cloud-controller/) binds "
    "`cluster-admin`."
)
_VSPHERE_PANIC = (
    "[`Exists`](https://github.com/kubernetes/cloud-provider-vsphere/blob/v1.36.0/pkg/common/vclib/virtualmachine.go) "
    "panics if vCenter's answer has no machine. The restarted process finds no machine for the Node, and "
    "upstream's framework deletes the Node."
)
#: Controllers that are built on upstream's framework.
_FRAMEWORK = ("upstream", "cloud-provider-aws", "cloud-provider-openstack", "cloud-provider-vsphere")
#: Behaviour -> controller -> why the behaviour failed, as the controller's log and source show. The sentences blame the
#: controller, the stand-in for its cloud, or another behaviour.
CAUSES: Mapping[str, Mapping[str, str]] = {
    **{
        f"fault.{listing}.{behaviour}": {"cloud-provider-vsphere": _VSPHERE_PANIC}
        for listing in ("empty-listing", "half-listing")
        for behaviour in ("keeps-nodes", "taints-nothing")
    },
    "node.unknown-silent": {
        "cloud-provider-aws": f"[`InstanceExists`]({_AWS}/instances_v2.go) returns false for a Node that has no "
        "providerID and whose name no instance has. Upstream's framework then deletes the Node.",
    },
    "node.unknown-told": dict.fromkeys(
        _FRAMEWORK, "Upstream's framework logs the error. It writes an Event only for a Node that it has initialised."
    ),
    "route.removed": {
        "cloud-provider-aws": f"[`ListRoutes`]({_AWS}/aws_routes.go) fails while an instance has a route and no Node, "
        "so no route is removed or added "
        "([cloud-provider-aws#627](https://github.com/kubernetes/cloud-provider-aws/issues/627)).",
    },
    "leader.released": dict.fromkeys(_FRAMEWORK, "Upstream's framework ends without releasing the Lease."),
    "balancer.members-after-refusal": {
        "cloud-provider-aws": f"[`UpdateLoadBalancer`]({_AWS}/aws.go) brings the whole Network Load Balancer up to "
        "date, and the refused port comes before the targets.",
        "cloud-provider-openstack": "`UpdateLoadBalancer` needs a listener for each port of the Service before it "
        "changes members, and the new port has none.",
    },
    "balancer.family-told": {
        "upstream": "The thin provider does not look at the families, and publishes an IPv4 address.",
    },
    "project.keeps-nodes": {
        "upstream": "Upstream's framework deletes a silent Node at the first \"not found\", and the other project does "
        "not have the machine.",
    },
    "project.keeps-address": {
        "upstream": "Upstream's framework ensures all load balancers when it starts. So it created a load balancer in "
        "the other project, and published its address.",
    },
    "project.releases-nothing": {
        "upstream": "The other project has no such load balancer, so the load balancer looks deleted. It stays in its "
        "own project, without a Service.",
    },
    "rights.no-secrets": {"upstream": _CLUSTER_ADMIN},
    "rights.no-escalation": {"upstream": _CLUSTER_ADMIN},
    "balancer.back-again": {"cloud-provider-openstack": _OPENSTACK_ID},
    "balancer.deleted-behind": {"cloud-provider-openstack": _OPENSTACK_ID},
}

#: Written by hand, because the table shows only the results of the last runs.
FIXED = """## What ours did wrong before

The suite and [Kubernetes' own specs](../testing.md#kubernetes-own-specs) found these faults of outoftree.ccm, which
are fixed:

- A Service without node ports was refused, although the simulated cloud's pass-through load balancers need none. Found
  by Kubernetes' spec "should be able to create LoadBalancer Service without NodePort and change it".
- After a takeover, a Service without an address waited until the load balancers of all others were written, if Nodes
  had changed meanwhile. Found by `balancer.udp` and three others on OpenStack's services on a busy machine.
- The provider `openstack` deleted the listener of a Service's former port before Octavia had accepted the one of the
  new port. Found by `balancer.members-after-refusal`.
- With credentials of another project, a deleted Service was released, and its load balancer stayed in the right one.
  Found by `project.releases-nothing`.
- A namespace that was being deleted cost a log line for each Event about its Services. Found in the logs of
  Kubernetes' specs, which delete their namespaces.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make ccm-suite", description=__doc__)
    parser.add_argument("controllers", nargs="*", help=f"of {', '.join(CONTROLLERS)}; all by default")
    parser.add_argument("--page", action="store_true", help="only write docs/reference/suite.md from stored results")
    parser.add_argument("--again", action="store_true", help="forget what an earlier run has seen")
    options = parser.parse_args()
    if unknown := [name for name in options.controllers if name not in CONTROLLERS]:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(CONTROLLERS)}")
    try:
        if not options.page:
            run_all(options.controllers or list(CONTROLLERS), again=options.again)
        PAGE.write_text(page())
    except (BedError, MissingBinaries, SuiteError) as error:
        print(f"make ccm-suite: {error}", file=sys.stderr)
        return 1
    return 0


def run_all(names: Sequence[str], *, again: bool) -> None:
    """Run the controllers, all at the same time, because a run mostly waits, and takes turns when it does not.

    An error ends its controller's run and is shown at once. Raises the first error, in the order of the controllers,
    when all runs have ended.
    """

    def drive(name: str) -> None:
        try:
            run(name, again=again)
        except Exception as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            raise

    with ThreadPoolExecutor(len(names)) as pool:
        for ended in [pool.submit(drive, name) for name in names]:
            ended.result()


def run(name: str, *, again: bool) -> None:
    """Run the suite against one of CONTROLLERS. Failed behaviours are results, too. Raises SuiteError if the suite
    did not end; docs/suite then stays as it was.
    """
    controller = CONTROLLERS[name]
    RAW.mkdir(parents=True, exist_ok=True)
    results = RAW / f"{name}.json"
    if _kept(name).exists() and not results.exists():
        results.write_text(_kept(name).read_text())
    with _TEMPLATES:
        roles = controller.roles()
    command = [sys.executable, "-m", "ccm_suite", "run", f"--name={name}", f"--controller={controller.command()}"]
    command += [f"--cloud={controller.cloud}", f"--binaries={binaries()}", f"--results={results}"]
    command += [f"--turn={RAW / 'turn'}", f"--patience={controller.patience:g}", *(f"--roles={file}" for file in roles)]
    environment = {**os.environ, "CCM_SIM": f"{sys.executable} -m ccm.cli sim"}
    status = _shown(name, [*command, *(["--again"] if again else [])], environment)
    seen = Results(results, name)
    seen.resume()
    if status not in (0, 1) or seen.by_id.keys() != catalogue().keys():  # a crash has exit status 1, too
        raise SuiteError(f"{len(seen.by_id)} of {len(catalogue())} results of {name}; the same command goes on")
    KEPT.mkdir(exist_ok=True)
    _kept(name).write_text(results.read_text())


def _shown(name: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command, show its lines with the controller's name before each, and return its exit status."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{name}: {line}", end="", flush=True)
    return process.returncode


def _kept(name: str) -> Path:
    return KEPT / f"{name}.json"


def page() -> str:
    """Return docs/reference/suite.md, with the controllers that have results."""
    columns = [Results(path, path.stem) for path in map(_kept, CONTROLLERS) if path.exists()]
    for column in columns:
        column.resume()
    listing = "\n".join(
        f"- **{column.controller}**: {CONTROLLERS[column.controller].title}: {_counts(column)}" for column in columns
    )
    table = report.table(columns, catalogue())
    parts = [INTRODUCTION, f"{listing}\n\n{table}", FIGURES, _figures(columns), SEEN, _failures(columns), f"\n{FIXED}"]
    return "".join(parts)


def _figures(columns: Sequence[Results]) -> str:
    """Return a table of what behaviours measured. A failed behaviour has no figure, or one that shows why it failed."""
    lines = ["| ID | figure | " + " | ".join(column.controller for column in columns) + " |"]
    lines.append("|---|---|" + "---|" * len(columns))
    for id in catalogue():
        measured = [column.by_id[id].figures if id in column.by_id else {} for column in columns]
        for name in dict.fromkeys(name for figures in measured for name in figures):
            cells = [f"{figures[name]:g}" if name in figures else "" for figures in measured]
            lines.append(f"| `{id}` | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _failures(columns: Sequence[Results]) -> str:
    """Return a list of the behaviours that a controller failed, with the reasons and the sources' addresses."""
    lines = []
    for about in catalogue().values():
        seen = [(column, column.by_id[about.id]) for column in columns if about.id in column.by_id]
        causes = CAUSES.get(about.id, {})
        failed = [
            f"  - {column.controller}: " + ". ".join(filter(None, [result.reason, causes.get(column.controller)]))
            for column, result in seen
            if result.outcome == "failed"
        ]
        if failed:
            lines += [f"- `{about.id}`: {about.sentence} ([{_thread(about.source)}]({about.source}))", *failed]
    return "\n".join([*lines, ""]) if lines else "Nothing failed.\n"


def _thread(url: str) -> str:
    """Return the name of an issue, as in kubernetes#119905, or "source" for another address."""
    issue = re.fullmatch(r"https://github\.com/[^/]+/([^/]+)/issues/(\d+)", url)
    return f"{issue[1]}#{issue[2]}" if issue else "source"


def _counts(column: Results) -> str:
    counts = column.counts()
    time = f", in {column.seconds / 60:.0f} minutes" if column.seconds else ""
    return f"{counts['passed']} of {sum(counts.values())} behaviours, {counts['skipped']} not asked{time}"


if __name__ == "__main__":
    sys.exit(main())
