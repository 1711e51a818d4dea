# SPDX-License-Identifier: Apache-2.0
"""Reads data about the machine of this process from the instance metadata service, with IMDSv2. Blocking."""

from __future__ import annotations

from typing import Any


class InstanceMetadata:
    """Reads from the instance metadata service. `timeout`: how long to wait for one answer, in seconds; at most 2,
    because outside EC2 no answer comes. `endpoint`: "" for EC2's own address."""

    def __init__(self, timeout: float, endpoint: str) -> None:
        self._timeout, self._endpoint = min(timeout, 2.0), endpoint

    def region(self) -> str:
        """Return the region of this machine; "" if the service does not answer, as outside EC2."""
        return self._read("/latest/meta-data/placement/region")

    def instance_id(self) -> str:
        """Return the ID of this machine; "" if the service does not answer, as outside EC2."""
        return self._read("/latest/meta-data/instance-id")

    def _read(self, path: str) -> str:
        from botocore.utils import IMDSFetcher

        class Fetcher(IMDSFetcher):  # type: ignore[misc]
            def read(self, path: str) -> str:
                token = self._fetch_metadata_token()
                if not token:  # IMDSv1 needs no token, so forged requests can use it; never fall back to it
                    return ""
                answer: Any = self._get_request(path, lambda response: False, token)
                return str(answer.text).strip() if answer.status_code == 200 else ""

        from botocore.exceptions import BotoCoreError

        try:
            config = {"ec2_metadata_service_endpoint": self._endpoint} if self._endpoint else {}
            return Fetcher(timeout=self._timeout, num_attempts=3, config=config).read(path)
        except (BotoCoreError, Fetcher._RETRIES_EXCEEDED_ERROR_CLS):
            return ""
