# SPDX-License-Identifier: Apache-2.0
"""`ccm doctor`: checks rights, flags, credentials, clocks, other controllers, Nodes, owners, certificates, versions."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from ccm.controllers.controller_registry import BUILT_IN
from ccm.controllers.controller_spec import ControllerSpec
from ccm.controllers.nodes import node_rules
from ccm.controllers.routes.route import RouteController
from ccm.controllers.shared.watched_kinds import NODES, SERVICES
from ccm.engine.client import ApiError
from ccm.engine.objects import Lease
from ccm.manager import room_settings
from ccm.options.command_line import Options, Parser
from ccm.options.declaration import option
from ccm.options.values import TEXT

from ..asking.answers import Unasked
from ..asking.asking import answer
from ..asking.cluster_objects import ConfigMap, NodeLease, Pod, ServerVersion, SigningRequest, Workload, WrittenNode
from ..asking.explanation import Event
from ..asking.leading import is_led, leader_lines
from ..asking.question_flags import GROUP, Questions, parser
from ..asking.reading import Cluster, open_clouds, open_cluster
from ..outlooks.gathering import LEASES, Survey, all_quotas, all_routes, balancer_outlooks, gather
from ..outlooks.judging import Judging
from ..outlooks.node_outlook import one_each
from . import check_cloud, check_components, check_others, check_rights, check_times, check_webhook
from .diagnosis import Check, Diagnosis, State, render

DESCRIPTION = """Check everything that the controller needs: rights, flags of the cluster's components, credentials,
clocks, other controllers of the same Nodes, Nodes by state, load balancers and routes that nobody owns, certificates
that expire, and versions.

It reads only. Without --cloud-provider it asks no cloud. With the flags of the controller it asks the cloud, too."""
NO_CLOUD = "not asked: give the controller's --cloud-provider and --cloud-config to ask the cloud as well"
FAILED = "SyncLoadBalancerFailed"


def _namespaced(text: str) -> None:
    if text and not all(text.partition("/")[::2]):
        raise ValueError(f"{text!r} is not NAMESPACE/NAME")


@dataclass(frozen=True)
class DoctorFlags(Questions):
    service_account: str = option(
        GROUP,
        TEXT,
        "",
        "check the rights of this ServiceAccount, NAMESPACE/NAME; empty: that of the controller's Pods",
        check=_namespaced,
    )


@dataclass
class ClusterFacts:
    """What the API server showed."""

    version: str
    server_time: datetime.datetime | None
    pods: list[Pod]
    written: list[WrittenNode]
    workloads: list[tuple[str, Workload]]
    leases: list[NodeLease]
    node_leases: list[NodeLease]
    requests: list[SigningRequest]
    client_ca: ConfigMap | None
    #: Configurations of webhooks; None if the controller serves no webhooks, or if the API server gave no answer.
    webhooks: list[check_webhook.Configuration] | None
    failures: list[Event]


def main(argv: Sequence[str]) -> int:
    """Run `ccm doctor`. Return the exit status: 0 nothing to do, 1 warnings or problems, 2 a question got no answer."""
    return answer(DoctorFlags, argv, arguments(), _ask, render)


def arguments() -> Parser:
    return parser(DoctorFlags, "ccm doctor", DESCRIPTION)


async def _ask(options: DoctorFlags) -> Diagnosis:
    async with open_cluster(options) as cluster:
        facts = await _look(options, cluster)
        if options.cloud_provider:
            async with open_clouds(options) as clouds:
                gathered = await gather(options, cluster, clouds)
                checks = await _with_cloud(gathered, facts)
        else:
            checks = await _without_cloud(options, cluster, facts)
        return Diagnosis(server=cluster.client.server, checks=checks, unasked=cluster.unasked)


async def _look(options: DoctorFlags, cluster: Cluster) -> ClusterFacts:
    namespace = options.leader_elect_resource_namespace
    apps, leases = "/apis/apps/v1", "/apis/coordination.k8s.io/v1/namespaces"
    version, moment = await _server(cluster)
    daemon_sets, deployments = await asyncio.gather(
        cluster.list("list daemonsets.apps", f"{apps}/daemonsets", Workload),
        cluster.list("list deployments.apps", f"{apps}/deployments", Workload),
    )
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    pods = await cluster.list("list pods in kube-system", "/api/v1/namespaces/kube-system/pods", Pod)
    return ClusterFacts(
        version=version,
        server_time=moment,
        pods=pods,
        webhooks=await _webhooks(cluster, pods),
        written=await cluster.list("list nodes", NODES.path, WrittenNode),
        workloads=[("DaemonSet", daemon_set) for daemon_set in daemon_sets]
        + [("Deployment", deployment) for deployment in deployments],
        leases=await cluster.list(f"list leases in {namespace}", f"{leases}/{namespace}/leases", NodeLease),
        node_leases=await cluster.list("list leases in kube-node-lease", f"{leases}/kube-node-lease/leases", NodeLease),
        requests=await cluster.list(
            "list certificatesigningrequests",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            SigningRequest,
            {"fieldSelector": f"spec.signerName={check_times.SERVING_SIGNER}"},
        ),
        client_ca=await cluster.get("read the ConfigMap extension-apiserver-authentication", path, ConfigMap),
        failures=await cluster.list(
            "list the Events of Services", "/api/v1/events", Event, {"fieldSelector": f"reason={FAILED}"}
        ),
    )


async def _webhooks(cluster: Cluster, pods: list[Pod]) -> list[check_webhook.Configuration] | None:
    """Return the configurations of webhooks; None if the controller serves no webhooks, or if the API server gives no
    answer."""
    if not check_webhook.are_served(pods):
        return None
    unanswered = len(cluster.unasked)
    what = "list mutatingwebhookconfigurations"
    configurations = await cluster.list(what, check_webhook.CONFIGURATIONS, check_webhook.Configuration)
    return configurations if len(cluster.unasked) == unanswered else None


async def _server(cluster: Cluster) -> tuple[str, datetime.datetime | None]:
    """Return the API server's version, "" without an answer, and its time, None if it is not known."""
    version = await cluster.get("read the version", "/version", ServerVersion)
    try:
        date = await cluster.client.date()
        moment = email.utils.parsedate_to_datetime(date) if date else None
    except (ApiError, aiohttp.ClientError, OSError, ValueError):
        moment = None
    return (version.git_version if version else ""), moment


async def _with_cloud(survey: Survey, facts: ClusterFacts) -> list[Check]:
    nodes = survey.node_outlooks()
    balancers, routes = await asyncio.gather(survey.outlooks(balancer_outlooks), survey.outlooks(all_routes))
    every = one_each([*nodes, *balancers, *routes])
    checks = []
    for part in survey.parts:
        checks += check_cloud.answered(part.answers, part.options.cloud_provider, part.subject)
        if part.refused is None:  # a refusal of the credentials is reported once
            checks += check_cloud.quotas(await all_quotas(part), part.subject)
    listed = {
        part.name: part.judging.snapshot.by_id.values() for part in survey.parts if isinstance(part.judging, Judging)
    }
    checks += check_cloud.overlaps(listed) if len(survey.parts) > 1 else []
    failed = any(error is not None for part in survey.parts for error in part.answers.values())
    ours = [
        *check_cloud.nodes(survey.nodes or [], nodes),
        *check_cloud.services(survey.first.services or [], facts.failures, balancers, survey.classes),
        *check_cloud.owners(every, asked=not failed),
        *(check_cloud.planned(every) if not failed else []),
    ]
    flags = [flags for part in survey.parts if (flags := part.flags_of(RouteController.name)) is not None]
    network = flags[0].network if flags else None
    components = check_components.flags(facts.pods, network, survey.options.cluster_name)
    shared = await _shared(survey.options, survey.cluster, facts, survey.first.lease, survey.specs, survey.first.now)
    ready = [node.metadata.name for node in survey.nodes or () if node_rules.is_ready(node)]
    return [
        *shared,
        *components,
        *checks,
        *_clocks(facts, ready),
        *ours,
        *await _certificates(survey.options, survey.cluster, facts),
    ]


async def _without_cloud(options: DoctorFlags, cluster: Cluster, facts: ClusterFacts) -> list[Check]:
    """Return the results of the checks for which the API server is enough."""
    namespace, name = options.leader_elect_resource_namespace, options.leader_elect_resource_name
    lease = await cluster.get(f"read the Lease {namespace}/{name}", LEASES.format(namespace, name), Lease)
    nodes, services = await cluster.all(NODES), await cluster.all(SERVICES)
    specs = [spec for spec in BUILT_IN.values() if spec.name in options.controllers]
    now = datetime.datetime.now(datetime.UTC)
    ready = [node.metadata.name for node in nodes or () if node_rules.is_ready(node)]
    return [
        *await _shared(options, cluster, facts, lease, specs, now),
        *check_components.flags(facts.pods, None, options.cluster_name),
        Check(check_cloud.CREDENTIALS, State.NOTE, NO_CLOUD),
        *_clocks(facts, ready),
        *check_cloud.nodes(nodes or [], ()),
        *check_cloud.services(services or [], facts.failures, (), options.served_classes()),
        *await _certificates(options, cluster, facts),
    ]


async def _shared(
    options: Options,
    cluster: Cluster,
    facts: ClusterFacts,
    lease: Lease | None,
    specs: Sequence[ControllerSpec[Any]],
    now: datetime.datetime,
) -> list[Check]:
    """Return the results about versions, the leader, rights, and other controllers."""
    name = f"{options.leader_elect_resource_namespace}/{options.leader_elect_resource_name}"
    state = State.OK if is_led(lease, now) else State.WARNING
    ours = [options.leader_elect_resource_name, options.leader_migration.leader_name]
    return [
        *check_components.versions(facts.version, facts.written, facts.pods),
        Check("leader", state, "; ".join(line.strip() for line in leader_lines(lease, name, now))),
        *await check_rights.check(
            cluster,
            room_settings.rights(options, specs),
            _account(options, facts),
            own=not options.kubeconfig and not options.master,
        ),
        *check_others.writers(facts.written, lease, now),
        *check_others.leases(facts.leases, ours, now),
        *check_others.workloads(facts.workloads, facts.pods),
    ]


def _account(options: Options, facts: ClusterFacts) -> check_rights.Account | None:
    named = options.service_account if isinstance(options, DoctorFlags) else ""
    namespace, _, name = named.partition("/")
    return (namespace, name) if named else check_rights.account_of(facts.pods)


def _clocks(facts: ClusterFacts, ready: Sequence[str]) -> list[Check]:
    here = datetime.datetime.now(datetime.UTC)
    return check_times.clocks(facts.server_time, here, facts.node_leases, ready)


async def _certificates(options: Options, cluster: Cluster, facts: ClusterFacts) -> list[Check]:
    access, now = cluster.client.access, datetime.datetime.now(datetime.UTC)
    whose = "this kubeconfig" if options.kubeconfig or options.master else "this Pod"
    certificates: dict[str, bytes] = {}
    try:
        if access.proxy is None:
            certificates["the API server's certificate"] = await check_times.server_certificate(
                access.server, access.server_name
            )
        for what, pem in (
            (f"the CA of {whose}", access.ca),
            (f"the client certificate of {whose}", access.cert),
        ):
            if pem is not None:
                certificates[what] = pem.read()
    except (OSError, TimeoutError) as error:
        cluster.unasked.append(Unasked("read certificates", str(error)))
    if facts.client_ca is not None and (text := facts.client_ca.data.get("client-ca-file")):
        certificates["the CA of client certificates"] = text.encode()
    checks = check_times.certificates({what: data for what, data in certificates.items() if data}, now)
    if facts.webhooks is not None:
        checks += check_webhook.configured(facts.webhooks, now)
    token = access.token or (access.token_file.get() if access.token_file is not None else "")
    return [*checks, *check_times.token(token, now, whose), *check_times.requests(facts.requests)]
