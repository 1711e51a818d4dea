# SPDX-License-Identifier: Apache-2.0
"""A real API server calls a provider's webhook about a real PersistentVolume."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccm.cloud import Webhook
from ccm.engine.client import ApiError, KubeClient
from ccm.engine.objects import PartialObject
from ccm.manager import room_settings
from ccm.options.command_line import parse
from ccm.serving.health import Health
from ccm.serving.ports import Serving
from tests.ports import free_port

from ..cluster import ApiServer
from .support import eventually

VOLUMES = "/api/v1/persistentvolumes"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


async def label(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer as the admission plugin PersistentVolumeLabel did in older releases."""
    if request["object"]["metadata"]["name"] == "refused":
        return {"allowed": False, "status": {"message": "not in this zone"}}
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"topology.kubernetes.io/zone": "north-a"}}]
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}


def volume(name: str) -> dict[str, Any]:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


async def test_a_webhook_is_asked_and_heard(apiserver: ApiServer, kube: KubeClient, tmp_path: Path):
    cert, key = apiserver.authority.issue("webhook", hosts=["127.0.0.1"])
    (tmp_path / "cloud-controller-manager-webhook.crt").write_bytes(cert)
    (tmp_path / "cloud-controller-manager-webhook.key").write_bytes(key)
    port = free_port()
    flags = ["--feature-gates=CloudControllerManagerWebhook=true", "--webhooks=*", f"--webhook-cert-dir={tmp_path}"]
    flags += ["--webhook-bind-address=127.0.0.1", f"--webhook-secure-port={port}", "--secure-port=0"]
    offered = {"volumes": Webhook("/label-volumes", label)}
    hook = {
        "name": "volumes.ccm.outoftree.dev",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/label-volumes",
            "caBundle": base64.b64encode(apiserver.ca_file.read_bytes()).decode(),
        },
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["persistentvolumes"]}
        ],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    async with contextlib.AsyncExitStack() as cleanup:
        settings = room_settings.serving(parse(["--cloud-provider=sim", *flags]))
        await Serving(settings, lambda kubeconfig: kube, lambda: offered, cleanup).start(Health())
        await kube.create(HOOKS, {**head, "metadata": {"name": "ccm"}, "webhooks": [hook]})
        cleanup.push_async_callback(kube.delete, f"{HOOKS}/ccm")
        made: list[str] = []

        async def labelled() -> bool:
            """Create a volume; return whether it was labelled. The API server needs a moment to know its webhooks."""
            name = f"volume-{len(made)}"
            await kube.create(VOLUMES, volume(name))
            made.append(name)
            cleanup.push_async_callback(kube.delete, f"{VOLUMES}/{name}")
            found = await kube.get(f"{VOLUMES}/{name}", PartialObject)
            return found.metadata.labels.get("topology.kubernetes.io/zone") == "north-a"

        await eventually(labelled)
        try:
            await kube.create(VOLUMES, volume("refused"))
            raise AssertionError("the webhook was not heard")
        except ApiError as error:
            assert "not in this zone" in str(error)
