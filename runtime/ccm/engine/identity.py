# SPDX-License-Identifier: Apache-2.0
"""Identifies the cluster behind the API server: by the UID of the Namespace `kube-system`, as usual in Kubernetes.

If the address leads to another cluster, or an empty etcd replaced the old one, everything looks deleted. A process that
worked for one cluster must not continue with another one.
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
#: Seconds between attempts if the answer is required.
AGAIN = 1.0


class ClusterChanged(Exception):
    """The API server serves another cluster than before. The process must exit; the message says why."""


class ClusterIdentity:
    """The first cluster that was seen, and whether it is still the same. `uid` is "" until it is known."""

    def __init__(self, client: KubeClient, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client, self._clock = client, clock
        self.uid = ""
        self._warned = False

    async def check(self) -> None:
        """Read the Namespace once. Raises ClusterChanged, and ApiError if the API server does not answer.

        Without the permission to read it, the process continues unprotected, after one warning: its RBAC is older than
        this program.
        """
        try:
            uid = (await self._client.get(_PATH, PartialObject)).metadata.uid
        except ForbiddenError as error:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "cannot detect another cluster behind the address %s: grant the verb get on the Namespace %s (%s)",
                    self._client.server,
                    NAMESPACE,
                    error,
                )
            return
        if not self.uid:
            self.uid = uid
        elif uid != self.uid:
            raise ClusterChanged(
                f"the API server {self._client.server} serves another cluster than before: its Namespace {NAMESPACE} "
                f"has the UID {uid}, not {self.uid}. This process exits and writes nothing more. Check the address "
                "in --kubeconfig or --master, and whether etcd was replaced"
            )

    async def settled(self) -> None:
        """Wait until the API server has answered. Raises ClusterChanged if it serves another cluster than before."""
        while True:
            try:
                await self.check()
                return
            except ApiError as error:
                logger.warning("cannot read the Namespace %s, trying again: %s", NAMESPACE, error)
                await self._clock.sleep(AGAIN)
