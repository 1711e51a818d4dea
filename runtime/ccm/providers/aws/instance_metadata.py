# SPDX-License-Identifier: Apache-2.0
"""What the instance metadata service says about the machine of this process: IMDSv2, with a token. Blocking."""

from __future__ import annotations

from typing import Any


class InstanceMetadata:
    """`timeout`: for one answer, in seconds; on a machine elsewhere nobody answers, so it is short. `endpoint`: "" for
    the address that EC2 has."""

    def __init__(self, timeout: float, endpoint: str) -> None:
        self._timeout, self._endpoint = min(timeout, 2.0), endpoint

    def region(self) -> str:
        """The region of this machine, "" if it is none of EC2's."""
        return self._read("/latest/meta-data/placement/region")

    def instance_id(self) -> str:
        """The ID of this machine, "" if it is none of EC2's."""
        return self._read("/latest/meta-data/instance-id")

    def _read(self, path: str) -> str:
        from botocore.utils import IMDSFetcher

        class Fetcher(IMDSFetcher):  # type: ignore[misc]
            def read(self, path: str) -> str:
                token = self._fetch_metadata_token()
                if not token:  # without a token it would be version 1, which any request forged by a Pod could use
                    return ""
                answer: Any = self._get_request(path, lambda response: False, token)
                return str(answer.text).strip() if answer.status_code == 200 else ""

        from botocore.exceptions import BotoCoreError

        try:
            config = {"ec2_metadata_service_endpoint": self._endpoint} if self._endpoint else {}
            return Fetcher(timeout=self._timeout, num_attempts=3, config=config).read(path)
        except (BotoCoreError, Fetcher._RETRIES_EXCEEDED_ERROR_CLS):
            return ""
