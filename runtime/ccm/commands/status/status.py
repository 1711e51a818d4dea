# SPDX-License-Identifier: Apache-2.0
"""`ccm status`: what the controller is doing now, from the page `/statusz` of its processes."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from ccm.engine import kubeconfig, nesting
from ccm.engine.api_credentials import Access, Pem
from ccm.engine.client import ApiError
from ccm.engine.objects import UNREADABLE, Lease, decoder
from ccm.options.command_line import Parser
from ccm.options.declaration import option
from ccm.options.values import TEXT
from ccm.serving import status_text
from ccm.serving.status_report import Status, advice

from ..asking.answers import FINDINGS, NOT_ANSWERED, NOTHING_TO_DO, Unasked, one_line, section, table
from ..asking.asking import answer
from ..asking.cluster_objects import Pod
from ..asking.leading import is_led, leader_lines
from ..asking.question_flags import GROUP, Questions, parser
from ..asking.reading import ReadingClient, open_cluster, reason_of
from ..outlooks.gathering import LEASES
from . import pod_page
from .status_page_rules import PAGE, host_of, in_order, is_loopback, is_on, page_url, port_of, why_not_asked

DESCRIPTION = """Show what the controller is doing now: who leads, Nodes and Services by state, the slowest and the
stuck objects with their reasons, queues, calls to the cloud, and held deletions. The page /statusz has the same text.

Without --url, it reads the Lease and the controller's Pods, and asks each Pod through a port that the API server
forwards, with the credentials of the kubeconfig. This needs the rights get and create for pods/portforward. With
--url, it sends the credentials to that server. If the server is not on this machine, its certificate must be signed by
a CA in --url-ca-file or by one of the system's CAs. Without --url-ca-file, certificates on forwarded ports and on this
machine are not verified."""
#: Seconds to wait for a page.
PATIENCE = 10.0


def _url(text: str) -> None:
    if text:
        page_url(text)


def _file(text: str) -> None:
    if text and not os.access(text, os.R_OK):
        raise ValueError(f"cannot read {text!r}")


@dataclass(frozen=True)
class StatusFlags(Questions):
    provider_help: ClassVar[str] = "accepted and not used: this command never asks the cloud"

    url: str = option(GROUP, TEXT, "", "read the page of this server, such as https://127.0.0.1:10258", check=_url)
    url_ca_file: str = option(
        GROUP, TEXT, "", "verify the process's certificate with the CAs in this file", check=_file
    )
    selector: str = option(
        GROUP,
        TEXT,
        "app.kubernetes.io/name=cloud-controller-manager",
        "select the controller's Pods in the namespace of the Lease by these labels",
    )


class Replica(Struct, frozen=True, rename="camel"):
    """One Pod of the controller."""

    pod: Annotated[str, Meta(description="The Pod's name.")]
    node: Annotated[str, Meta(description="The Pod's Node.")]
    phase: Annotated[str, Meta(description="The Pod's phase.")]
    leads: Annotated[bool, Meta(description="Whether this Pod, or a process on its Node, holds the Lease.")]


class StatusAnswer(Struct, frozen=True, rename="camel", tag_field="answer", tag="status"):
    """The answer of `ccm status`."""

    server: Annotated[str, Meta(description="The URL that was asked: of the API server, or of one process.")]
    leader: Annotated[list[str], Meta(description="Who leads, as lines of text; empty with `--url`.")]
    led: Annotated[bool, Meta(description="Whether somebody leads.")]
    replicas: Annotated[
        list[Replica], Meta(description="The controller's Pods, the leader's first; empty with `--url`.")
    ]
    processes: Annotated[list[Status], Meta(description="What the processes answered, the leader's first.")]
    unasked: Annotated[list[Unasked], Meta(description="Questions that got no answer.")]

    @property
    def status(self) -> int:
        if self.unasked:
            return NOT_ANSWERED
        is_finding = not self.led or any(advice(each) for each in self.processes)
        return FINDINGS if is_finding else NOTHING_TO_DO


def main(argv: Sequence[str]) -> int:
    """Run `ccm status`. Return the exit status: 0 all is well, 1 something is not as it should be, 2 a question got no
    answer."""
    return answer(StatusFlags, argv, arguments(), _ask, render)


def arguments() -> Parser:
    return parser(StatusFlags, "ccm status", DESCRIPTION)


async def _ask(options: StatusFlags) -> StatusAnswer:
    """Return the answer for the process at `--url`, or without that flag for all Pods. Raises ApiError and
    KubeConfigError."""
    return await (_ask_one(options) if options.url else _ask_all(options))


async def _ask_one(options: StatusFlags) -> StatusAnswer:
    server, path = page_url(options.url)
    client = ReadingClient(access_to(server, options))
    try:
        page = await _page(client, path)
    finally:
        await client.close()
    led = page.process.role != "standby" or bool(page.process.leader)
    return StatusAnswer(server, [], led, [], [page], [])


def access_to(server: str, options: StatusFlags) -> Access:
    """Return the kubeconfig's credentials for the server of a status page.

    Without --url-ca-file, the certificate of a server on this machine is not verified, because it is self-signed by
    default, and a forwarded port leads to this machine. Any other server needs a certificate of a trusted CA, because
    it receives the credentials. Raises KubeConfigError if the kubeconfig cannot be used.
    """
    access = kubeconfig.load(options.kubeconfig, options.master)
    ca = Pem(file=Path(options.url_ca_file)) if options.url_ca_file else None
    insecure = ca is None and is_loopback(server)
    # Replace what belongs to the API server: its address, proxy, CA, name, and impersonation.
    return dataclasses.replace(
        access, server=server, ca=ca, insecure=insecure, server_name=None, proxy=None, impersonate=[]
    )


async def _ask_all(options: StatusFlags) -> StatusAnswer:
    namespace, name = options.leader_elect_resource_namespace, options.leader_elect_resource_name
    async with open_cluster(options) as cluster:
        lease = await cluster.get(f"read the Lease {namespace}/{name}", LEASES.format(namespace, name), Lease)
        pods = await cluster.list(
            f"list pods in {namespace}",
            f"/api/v1/namespaces/{namespace}/pods",
            Pod,
            {"labelSelector": options.selector},
        )
        host, now = host_of(lease), datetime.datetime.now(datetime.UTC)
        pods = in_order(pods, host)
        process = access_to(f"https://{pod_page.HOST}", options)
        answers = await asyncio.gather(*(_page_of(cluster.client, process, pod) for pod in pods))
        unasked = [*cluster.unasked, *(each for each in answers if isinstance(each, Unasked))]
        if not pods and not cluster.unasked:
            why = f"no Pod in {namespace} has the labels {options.selector}: see --selector and --url"
            unasked.append(Unasked("find the controller's Pods", why))
        replicas = [
            Replica(pod.metadata.name, pod.spec.node_name, pod.status.phase, is_on(pod, host) and is_led(lease, now))
            for pod in pods
        ]
        return StatusAnswer(
            cluster.client.server,
            leader_lines(lease, f"{namespace}/{name}", now),
            is_led(lease, now),
            replicas,
            [each for each in answers if isinstance(each, Status)],
            unasked,
        )


async def _page_of(client: ReadingClient, process: Access, pod: Pod) -> Status | Unasked:
    """Read the page of the process in a Pod. `process`: the credentials for it."""
    meta, question = pod.metadata, f"read {PAGE} of the Pod {pod.metadata.name}"
    if why := why_not_asked(pod):
        return Unasked(question, why)
    path = f"{PAGE}?format=json"
    try:
        body = await pod_page.read(client, process, meta.namespace, meta.name, port_of(pod), path, PATIENCE)
        return await nesting.decode(decoder(Status), body)
    except ApiError as error:
        return Unasked(question, reason_of(error))
    except UNREADABLE as error:
        return Unasked(question, f"the answer is not a page of this controller: {error}")


async def _page(client: ReadingClient, path: str) -> Status:
    """Return the report of the process at `path`. Raises ApiError."""
    json: Mapping[str, str] = {"format": "json"}
    return await client.get(path, Status, params=json, timeout=PATIENCE)


def render(answer: StatusAnswer, now: datetime.datetime) -> list[str]:
    """Return lines of text, safe for a terminal."""
    lines = [one_line(f"Status of the controller at {answer.server}"), *map(one_line, answer.leader)]
    if answer.replicas:
        rows = [
            (replica.pod, replica.node, replica.phase, "leader" if replica.leads else "standby")
            for replica in answer.replicas
        ]
        lines += ["", *table(("POD", "NODE", "PHASE", "ROLE"), rows)]
    for process in answer.processes:
        lines += ["", *status_text.lines(process)]
    return lines + section("NOT ANSWERED", (f"{each.question}: {each.why}" for each in answer.unasked))
