# SPDX-License-Identifier: Apache-2.0
"""kubelet-serving-csr-controller: approves kubelets' requests for serving certificates that the cloud confirms.

Kubernetes approves none of them, because only the owner of the machines can say which names and addresses a Node has
(https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/). `serving_csr_rules` decides.

One queue key is one requester, so a kubelet with many requests delays only itself, and one answer of the cloud serves
all of them. Each decision uses an answer from a read that began after the request was taken from the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Count
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import Counter

from ccm.base.cloud_metrics import CloudGauge
from ccm.base.text import shorten
from ccm.cloud import CloudError, Conflict, Instance, InstanceRef, NotFound
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.informer import Informer
from ccm.engine.objects import Node
from ccm.engine.queue import Requeue, WorkQueue

from ..nodes.owners import Share
from ..shared.context import Context, log_failure
from ..shared.event_budget import EventBudget
from . import serving_csr_rules as rules
from .serving_csr_rules import Reason, RequestedNames, WaitError
from .signing_requests import SIGNING_REQUESTS, SigningRequest, is_waiting

log = logging.getLogger(__name__)

APPROVED = Counter(
    "ccm_serving_certificate_requests_approved", "Requests of kubelets for serving certificates that were approved."
)
WAITING = CloudGauge(
    "ccm_serving_certificate_requests_waiting",
    "Requests for serving certificates of kubelets that are not approved, by reason: Requester, Malformed, Usages, "
    "TooMany, Node, Instance, Names, Cloud, API.",
    ["reason"],
)
for _reason in Reason:
    WAITING.labels(_reason.value)

#: Seconds until a request is judged again: `AGAIN` if it was refused, `RETRY` if the cloud gave no answer.
AGAIN, RETRY = 60.0, 15.0


@dataclass(frozen=True)
class ServingCsrOptions:
    """Options of the controller. `workers`: the number of requesters about which the cloud is asked at the same time;
    one listing serves all of them."""

    workers: int = 30


class ServingCsrController:
    name: ClassVar[str] = "kubelet-serving-csr-controller"

    def __init__(
        self,
        context: Context,
        requests: Informer[SigningRequest],
        options: ServingCsrOptions | None = None,
        share: Share | None = None,
    ) -> None:
        """`share`: the Nodes of this cloud; None if there is one cloud. Raises ValueError for a provider without
        instances."""
        if context.gateway.instances is None:
            raise ValueError(f"{self.name} needs a provider with instances")
        self._context, self._requests, self._options = context, requests, options or ServingCsrOptions()
        self._share, self._waiting_gauge = share, WAITING.of(context.gateway.name)
        self._directory = context.gateway.instances
        self._events = EventBudget(context.recorder(self.name), context.monotonic)
        self._queue: WorkQueue[str] = WorkQueue(
            context.of_cloud("CertificateSigningRequests"), base_delay=1.0, max_delay=300.0
        )
        #: Names of the waiting requests, by requester.
        self._waiting: dict[str, set[str]] = {}
        #: Why each of them waits, by name of the request.
        self._reasons: dict[str, Reason] = {}
        self._counts: Count[Reason] = Count()

    async def run(self) -> None:
        self._requests.add_handler(self._on_request)
        self._context.nodes.add_handler(self._on_node)
        await self._requests.wait_synced()
        await self._context.nodes.wait_synced()
        self._context.gateway.on_recovery("instances", self._queue.add)
        await self._queue.run_workers(self._options.workers, self._sync, on_error=log_failure(log))

    def _on_request(self, old: SigningRequest | None, new: SigningRequest | None) -> None:
        if old is not None and is_waiting(old) and (new is None or not is_waiting(new)):
            names = self._waiting.get(old.spec.username, set())
            names.discard(old.metadata.name)
            if not names:
                self._waiting.pop(old.spec.username, None)
            elif len(names) >= rules.READ:
                self._queue.add(old.spec.username)  # another one is read instead
            self._note(old.metadata.name, None)
        if new is not None and is_waiting(new) and (old is None or not is_waiting(old)):
            self._waiting.setdefault(new.spec.username, set()).add(new.metadata.name)
            self._queue.add(new.spec.username)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None or not self._waiting:
            return
        username = rules.USER_PREFIX + new.metadata.name
        if username in self._waiting and rules.addresses_changed(old, new):
            self._queue.add(username)

    async def _sync(self, username: str) -> None:
        if self._share is not None and not self._share.answers_for(self._context.nodes.get(rules.node_name(username))):
            for name in self._waiting.get(username, ()):
                self._note(name, None)  # another cloud's controllers answer, and say why a request waits
            return
        requests = (self._requests.get(name) for name in sorted(self._waiting.get(username, ())))
        chosen, others = rules.newest(each for each in requests if each is not None and is_waiting(each))
        for other in others:
            self._note(other.metadata.name, Reason.TOO_MANY)
        readable: list[tuple[SigningRequest, RequestedNames]] = []
        for request in chosen:
            try:
                readable.append((request, rules.read(request)))
            except WaitError as problem:
                self._report([request], problem)  # no later answer can change that
        if readable:
            await self._judge(rules.node_name(username), readable)

    async def _judge(self, name: str, readable: list[tuple[SigningRequest, RequestedNames]]) -> None:
        requests = [request for request, _ in readable]
        try:
            instance = await self._instance(name)
        except WaitError as problem:
            self._report(requests, problem)
            raise Requeue(AGAIN) from None
        except CloudError as error:
            unclear = isinstance(error, NotFound | Conflict)
            self._report(requests, WaitError(Reason.INSTANCE if unclear else Reason.CLOUD, str(error)))
            raise Requeue(error.retry_after or (AGAIN if unclear else RETRY)) from None
        contradicted = False
        for request, names in readable:
            try:
                rules.check_names(names, instance)
            except WaitError as problem:
                self._report([request], problem)
                contradicted = True
            else:
                await self._approve(request, instance)
        if contradicted:
            raise Requeue(AGAIN)

    async def _instance(self, name: str) -> Instance:
        """Return the instance of a Node, from reads that begin now. Raises WaitError and CloudError."""
        registered = self._context.nodes.get(name)
        node = rules.check_node(registered, name, owned=registered is not None and self._owns(registered))
        now = self._context.monotonic()
        by_id, by_name = await asyncio.gather(
            self._directory.lookup(InstanceRef(name, node.spec.provider_id), not_before=now),
            self._directory.lookup(InstanceRef(name), not_before=now),
        )
        key = self._directory.same_as(by_id.provider_id)
        rules.check_instance(
            node,
            by_id,
            by_name,
            same=key == self._directory.same_as(by_name.provider_id),
            claimants=self._claimants(key),
            gone_for=self._directory.gone_for(by_id.provider_id),
        )
        return by_id

    def _owns(self, node: Node) -> bool:
        return self._directory.owns(node.spec.provider_id) if self._share is None else self._share.has(node)

    def _claimants(self, key: str) -> Iterable[Node]:
        nodes = self._context.nodes.items()
        return [node for node in nodes if self._directory.same_as(node.spec.provider_id) == key]

    async def _approve(self, request: SigningRequest, instance: Instance) -> None:
        name = request.metadata.name
        now = self._context.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            await self._context.client.patch(
                f"{SIGNING_REQUESTS.path}/{name}/approval", rules.approval(request, instance, now)
            )
        except (ConflictError, NotFoundError):
            raise  # the request has changed or is gone: the queue tries again
        except ApiError as error:
            self._report([request], WaitError(Reason.API, f"the API server refused the approval: {error}"))
            raise
        APPROVED.inc()
        log.info("approved %s: serving certificate of %s", name, request.spec.username)

    def _report(self, requests: list[SigningRequest], problem: WaitError) -> None:
        """Count why the requests wait. For each, send an Event to the Node that the request is about, if the Node
        exists."""
        for request in requests:
            self._note(request.metadata.name, problem.reason)
            text = rules.message(request, problem)
            log.debug("%s", text)
            node = self._context.nodes.get(rules.concerned(request))
            if node is not None:
                self._events.event(
                    node,
                    "Warning",
                    "ServingCertificateNotApproved",
                    text,
                    topic=shorten(f"{request.metadata.name} {problem}", EventBudget.TOPIC),
                )

    def _note(self, name: str, reason: Reason | None) -> None:
        before = self._reasons.pop(name, None)
        if reason is not None:
            self._reasons[name] = reason
        for counted, change in ((before, -1), (reason, 1)):
            if counted is not None:
                self._counts[counted] += change
                self._waiting_gauge.labels(counted.value).set(self._counts[counted])
