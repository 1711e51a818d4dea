# SPDX-License-Identifier: Apache-2.0
"""Which cluster the API server shows: the UID of the Namespace `kube-system`, as everywhere in Kubernetes.

Another cluster behind the address, or an etcd that was replaced by an empty one, looks like a cluster in which
everything was deleted. A process that worked for one cluster must not go on with another one.
"""

from __future__ import annotations

import logging

from ccm.base.clock import SYSTEM_CLOCK, Clock

from .api_errors import ApiError, ForbiddenError
from .client import KubeClient
from .objects import PartialObject

logger = logging.getLogger(__name__)

NAMESPACE = "kube-system"
_PATH = f"/api/v1/namespaces/{NAMESPACE}"
#: Seconds between attempts where the answer is needed.
AGAIN = 1.0


class ClusterChanged(Exception):
    """The API server shows another cluster than it did before. The process has to end; the message says why."""


class ClusterIdentity:
    """The first cluster that is seen, and whether it still is the one. `uid` is "" until it is known."""

    def __init__(self, client: KubeClient, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client, self._clock = client, clock
        self.uid = ""
        self._warned = False

    async def check(self) -> None:
        """One read of the Namespace. Raises ClusterChanged, and ApiError when the API server gives no answer.

        An identity without the right to read it goes on without this protection, after one warning: its RBAC is older
        than this program.
        """
        try:
            found = (await self._client.get(_PATH, PartialObject)).metadata.uid
        except ForbiddenError as error:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "another cluster behind the address %s would not be noticed: grant the verb get on the Namespace "
                    "%s (%s)",
                    self._client.server,
                    NAMESPACE,
                    error,
                )
            return
        if not self.uid:
            self.uid = found
        elif found != self.uid:
            raise ClusterChanged(
                f"the API server {self._client.server} shows another cluster than before: its Namespace {NAMESPACE} "
                f"has the UID {found}, not {self.uid}. This process ends and writes nothing more. Check the address in "
                "--kubeconfig or --master, and whether etcd was replaced"
            )

    async def settled(self) -> None:
        """Return when the API server has answered. Raises ClusterChanged."""
        while True:
            try:
                await self.check()
                return
            except ApiError as error:
                logger.warning("the Namespace %s cannot be read, trying again: %s", NAMESPACE, error)
                await self._clock.sleep(AGAIN)
