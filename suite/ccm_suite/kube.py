# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API as plain objects, by the official client: it knows kubeconfigs, certificates and plug-ins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config, dynamic

from .errors import SuiteError

Object = dict[str, Any]

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
#: Seconds that one request may take.
PATIENCE = 30


class Kube:
    """Requests block. The suite makes them from several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        try:
            connection = config.new_client_from_config(str(kubeconfig))
        except config.ConfigException as error:
            raise SuiteError(f"{kubeconfig}: {error}") from error
        connection.configuration.retries = False
        # All paths are known here, so the discovery of what the API server has is left out.
        self._client = dynamic.DynamicClient(connection, discoverer=lambda *_: None)

    def get(self, path: str) -> Object | None:
        """None if there is no such object."""
        try:
            return self._call("GET", path)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str) -> list[Object]:
        return list(self._call("GET", path)["items"])

    def create(self, path: str, body: Object) -> Object:
        return self._call("POST", path, body)

    def patch(self, path: str, body: Any, kind: str = "merge-patch") -> Object:
        """`kind`: merge-patch, or json-patch with a list of operations."""
        return self._call("PATCH", path, body, kind)

    def delete(self, path: str) -> None:
        """What is gone already stays gone."""
        try:
            self._call("DELETE", path)
        except client.ApiException as error:
            if error.status != 404:
                raise

    def _call(self, method: str, path: str, body: Any = None, kind: str = "") -> Object:
        answer = self._client.request(
            method.lower(),
            path,
            body=body,
            content_type=f"application/{kind}+json" if kind else "application/json",
            serialize=False,
            _request_timeout=PATIENCE,
        )
        return dict(json.loads(answer.data))


#: What a request raises when the API server is away or refuses.
UNANSWERED = (client.ApiException, urllib3.exceptions.HTTPError, OSError)
