# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API as plain objects. The official client reads kubeconfigs, and knows certificates and plug-ins."""

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
#: The label of the Nodes, and of the vendor's roles, that the suite creates.
MARK = "ccm-suite.outoftree.dev/run"


class Kube:
    """A client of the API server. Requests block; the suite sends them from several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        try:
            connection = config.new_client_from_config(str(kubeconfig))
        except config.ConfigException as error:
            raise SuiteError(f"{kubeconfig}: {error}") from error
        connection.configuration.retries = False
        # The suite knows all paths, so the client need not discover the API server's resources.
        self._client = dynamic.DynamicClient(connection, discoverer=lambda *_: None)

    def get(self, path: str) -> Object | None:
        """Return an object, or None if it does not exist."""
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
        """Patch an object and return it. `kind`: merge-patch, or json-patch with a list of operations."""
        return self._call("PATCH", path, body, kind)

    def delete(self, path: str) -> None:
        """Delete an object. An object that does not exist is not an error."""
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


#: What a request raises if the API server does not answer or refuses.
UNANSWERED = (client.ApiException, urllib3.exceptions.HTTPError, OSError)
