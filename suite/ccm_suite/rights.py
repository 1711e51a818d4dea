# SPDX-License-Identifier: Apache-2.0
"""Lets the controller run as the ServiceAccount of its vendor's manifest, with the rights of that manifest."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.client import ApiException

from .errors import SuiteError
from .kube import MARK, Kube, Object

#: The kinds of a manifest that are created, with their paths; all others, such as the DaemonSet, are left out.
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Seconds until a new API server has created its namespaces.
PATIENCE = 60
#: Seconds for which the controller's token is valid: longer than any run.
LIFETIME = 24 * 3600


@dataclass(frozen=True)
class Rights:
    """The user as which the controller runs. `audit`: the API server's audit log, None if somebody else runs it."""

    user: str
    groups: Sequence[str]
    audit: Path | None

    def allow(self, kube: Kube, group: str, resource: str, verb: str) -> bool:
        """Return whether the user may use this verb on the resource in all namespaces."""
        resource, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": resource, "subresource": subresource, "verb": verb}
        spec = {"user": self.user, "groups": list(self.groups), "resourceAttributes": attributes}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool(kube.create(_REVIEWS, body)["status"]["allowed"])

    def refusals(self) -> set[str]:
        """Return the controller's requests that its rights do not cover, as in "delete nodes". A 403 of an admission
        plug-in does not count: one refuses Events in a namespace that is being deleted, whoever writes them."""
        assert self.audit is not None
        refused = set()
        for line in self.audit.read_text().splitlines():
            event = json.loads(line)
            decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
            if event["user"]["username"] == self.user and decision == "forbid":
                target = event.get("objectRef", {})
                parts = (target.get("resource", event["requestURI"]), target.get("subresource"))
                refused.add(f"{event['verb']} {'/'.join(filter(None, parts))}")
        return refused


def manifest_of(files: Sequence[Path]) -> list[Object]:
    """Return a vendor's ServiceAccount, which comes first, and its roles and bindings. Raises SuiteError."""
    made: list[Object] = []
    for file in files:
        try:
            documents = [each for each in yaml.safe_load_all(file.read_text()) if each]
            listed = [item for each in documents for item in (each["items"] if each["kind"] == "List" else [each])]
            made += [each for each in listed if each["kind"] in _PATHS]
        except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
            raise SuiteError(f"--roles {file}: {error}") from error
    made.sort(key=lambda each: each["kind"] != "ServiceAccount")
    accounts = sum(each["kind"] == "ServiceAccount" for each in made)
    if accounts != 1:
        raise SuiteError(f"--roles: the files have {accounts} ServiceAccounts; exactly one is needed, the controller's")
    return made


def grant(files: Sequence[Path], kube: Kube, kubeconfig: Path, folder: Path, audit: Path | None) -> tuple[Rights, Path]:
    """Create the roles of a vendor's files, and return the controller's rights, and a kubeconfig in `folder` for its
    ServiceAccount. The roles that earlier runs created are removed first: they may be another vendor's. Raises
    SuiteError, also if an object of the same kind and name exists that no run created."""
    manifest = manifest_of(files)
    _revoke(kube)
    for each in manifest:
        _create(kube, each)
    account = manifest[0]["metadata"]
    name, namespace = account["name"], account.get("namespace", "default")
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    token = kube.create(path, {**request, "spec": {"expirationSeconds": LIFETIME}})["status"]["token"]
    document = yaml.safe_load(kubeconfig.read_text())
    (current,) = [each["context"] for each in document["contexts"] if each["name"] == document["current-context"]]
    document["users"] = [{"name": current["user"], "user": {"token": token}}]
    made = folder / "kubeconfig-of-the-controller"
    made.touch(mode=0o600)
    made.write_text(json.dumps(document))
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return Rights(f"system:serviceaccount:{namespace}:{name}", groups, audit), made


def _revoke(kube: Kube) -> None:
    for path in _PATHS.values():
        collection = path.replace("/namespaces/{namespace}", "")
        for each in kube.list(f"{collection}?labelSelector={MARK}"):
            kube.delete(f"{path.format(namespace=each['metadata'].get('namespace'))}/{each['metadata']['name']}")


def _create(kube: Kube, document: Object) -> None:
    metadata = document["metadata"]
    namespace = metadata.get("namespace", "default")
    marked = {**document, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), MARK: "roles"}}}
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            kube.create(_PATHS[document["kind"]].format(namespace=namespace), marked)
            return
        except ApiException as error:
            what = f"{document['kind']} {metadata['name']}"
            if error.status == 409:
                raise SuiteError(
                    f"--roles: {what} exists, and no run of this suite created it, so its rights may be others: delete "
                    "it, or take another cluster"
                ) from error
            if error.status != 404 or time.monotonic() > deadline:
                raise SuiteError(f"--roles: {what}: {error.status} {error.reason}") from error
            time.sleep(0.5)
