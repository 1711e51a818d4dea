# SPDX-License-Identifier: Apache-2.0
"""Remembers the running jobs in the cloud that change the load balancer of each Service. A restart forgets them."""

from __future__ import annotations

from ccm.cloud import CloudError, RetryAfter

from .api import Api


class Jobs:
    def __init__(self, api: Api) -> None:
        self._api = api
        #: UID of a Service -> ID of a job -> what the job does.
        self._running: dict[str, dict[str, str]] = {}

    async def start(self, uid: str, command: str, fields: dict[str, str], what: str) -> str:
        """Start a job; return the ID of the object that it creates, "" if it creates none. Raises CloudError."""
        job = await self._api.start(command, **fields)
        self._running.setdefault(uid, {})[job.job] = what
        return job.id

    async def are_done(self, uid: str) -> bool:
        """Return whether all jobs of the Service have ended. Raises the error of a job that failed, once."""
        running = self._running.get(uid, {})
        for job, what in list(running.items()):
            outcome = await self._api.outcome(job, what)
            if outcome is False:
                return False
            running.pop(job, None)
            if isinstance(outcome, CloudError):
                raise outcome
        self._running.pop(uid, None)
        return True

    async def require_done(self, uid: str, what: str = "the load balancer is being changed") -> None:
        """Raises RetryAfter while a job runs, and the error of a job that failed, once."""
        if not await self.are_done(uid):
            raise RetryAfter(what, self._api.soon)
