# SPDX-License-Identifier: Apache-2.0
"""A session of botocore: credentials, endpoints and clients. Blocking; botocore is imported when it is first used."""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Mapping
from typing import Any

from ccm.cloud import ConfigError

from .instance_metadata import InstanceMetadata
from .settings import Settings

#: The number of connections to each service, and of threads of the provider.
CONNECTIONS = 10
#: The name of the sessions in CloudTrail.
SESSION_NAME = "outoftree-ccm"


def sdk_problem() -> str:
    """Return why botocore cannot be used, "" if it can. Does not import botocore."""
    if importlib.util.find_spec("botocore") is None:
        return "the provider aws needs botocore: install 'outoftree-ccm[aws]'"
    return ""


class Session:
    """Clients of one region. They are created once, because creating a client takes long, and all threads may share
    it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metadata = InstanceMetadata(settings.runtime.request_timeout, settings.metadata_endpoint)
        self.region = settings.region
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}

    def open(self) -> None:
        """Find the region and the credentials, and create the clients. Raises ConfigError if the region is unknown, and
        errors of botocore."""
        import botocore.session
        from botocore.config import Config

        # At --v=4 and more, these libraries would log requests, with signatures and the session's token.
        for library in ("botocore", "urllib3"):
            logging.getLogger(library).setLevel(logging.INFO)
        with self._lock:
            self.region = self.region or self.metadata.region()
            if not self.region:
                raise ConfigError(
                    [f"{self._settings.source}: the region is unknown: set Region in [Global], or AWS_REGION"]
                )
            session = botocore.session.Session()
            timeout, once = self._settings.runtime.request_timeout, {"total_max_attempts": 1, "mode": "standard"}
            # Also for the clients with which botocore itself requests credentials: the framework retries.
            session.set_default_client_config(Config(connect_timeout=timeout, read_timeout=timeout, retries=once))
            if (keys := self._settings.keys) is not None:
                session.set_credentials(keys.access_key, keys.secret_key, keys.token or None)
            self._session = session
            if self._settings.common.rolearn:
                self._assume(session)
            self._clients = {name: self._client(name) for name in ("ec2", "elbv2", "elb")}

    def call(self, service: str, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Make one request. `operation`: botocore's name of the method, such as `describe_instances`."""
        return getattr(self._clients[service], operation)(**arguments)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        endpoint = self._settings.endpoint(service, self.region)
        config = Config(max_pool_connections=CONNECTIONS, user_agent_extra=SESSION_NAME)
        region = (endpoint.signing_region if endpoint else "") or self.region
        return self._session.create_client(
            service, region, endpoint_url=endpoint.url if endpoint else None, config=config
        )

    def _assume(self, session: Any) -> None:
        """Let all clients use the role of cloud.conf; botocore renews its credentials before they expire."""
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

        source = self._settings.common.sourcearn
        if source:
            # These headers prevent the confused deputy problem, as IAM's user guide describes.
            account = source.split(":")[4]

            def add_headers(request: Any, **_: Any) -> None:
                request.headers["x-amz-source-arn"] = source
                request.headers["x-amz-source-account"] = account

            session.register("before-sign.sts.AssumeRole", add_headers)
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=lambda name, **more: self._sts(session, **more),
            source_credentials=session.get_credentials(),
            role_arn=self._settings.common.rolearn,
            extra_args={"RoleSessionName": SESSION_NAME},
        )
        session._credentials = DeferredRefreshableCredentials(
            refresh_using=fetcher.fetch_credentials, method="assume-role"
        )

    def _sts(self, session: Any, **keys: Any) -> Any:
        """Return a client of STS that asks for the role with the process's own credentials."""
        endpoint = self._settings.endpoint("sts", self.region)
        url = endpoint.url if endpoint else None
        allowed = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        arguments = {name: value for name, value in keys.items() if name in allowed}
        return session.create_client("sts", self.region, endpoint_url=url, **arguments)
