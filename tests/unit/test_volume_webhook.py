# SPDX-License-Identifier: Apache-2.0
"""The role ccm_runtime registers the webhook at the address where the runtime serves it."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from ccm.controllers import built_in_webhooks
from ccm.controllers.volumes import volume_webhook, volume_webhook_rules
from ccm.options.command_line import parse

from .ccm_runtime_role import rendered, value

CERTIFICATE = {"data": {"ca.crt": "bundle-in-base64"}, "created": False}
ON: dict[str, Any] = {"ccm_runtime_volume_webhook": True, "__ccm_runtime_webhook_certificate": CERTIFICATE}
OWN = {**ON, "ccm_runtime_volume_webhook_ca_bundle": "-----BEGIN CERTIFICATE-----\n"}


def pod(**variables: Any) -> dict[str, Any]:
    (daemonset,) = rendered("daemonset.yaml.j2", **variables)
    found: dict[str, Any] = daemonset["spec"]["template"]["spec"]
    return found


def hook(**variables: Any) -> dict[str, Any]:
    (configuration,) = rendered("volume_webhook.yaml.j2", **variables)
    (found,) = configuration["webhooks"]
    return dict(found)


@pytest.mark.parametrize("stage", ["node", "all"])
@pytest.mark.parametrize("variables", [ON, {**ON, "ccm_runtime_args": ["--cloud-provider=sim"]}, {**ON, **OWN}])
def test_the_api_server_asks_where_the_runtime_serves(variables: dict[str, Any], stage: str):
    """This holds in both stages: API servers call a webhook of an earlier run also while Nodes are adopted."""
    spec = pod(**variables, __ccm_runtime_stage=stage)
    options = parse([*spec["containers"][0]["args"], "--kubeconfig=/nowhere"])
    url = urlsplit(hook(**variables)["clientConfig"]["url"])
    assert options.webhooks == (built_in_webhooks.VOLUMES,)
    assert (url.scheme, url.path) == ("https", built_in_webhooks.VOLUMES_PATH)
    assert (url.hostname, url.port) == (options.webhook_bind_address, options.webhook_secure_port)
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "webhook"]
    tls = options.tls("webhook_")
    assert {tls.certificate, tls.key} == {f"{mount['mountPath']}/tls.crt", f"{mount['mountPath']}/tls.key"}


@pytest.mark.parametrize("variables", [{}, {"ccm_runtime_volume_webhook": "false"}])
def test_it_is_off_unless_asked_for(variables: dict[str, Any]):
    spec = pod(**variables)
    assert "webhook" not in str(spec)
    assert value("__ccm_runtime_webhook_objects", **variables) == []


def test_it_brings_the_controller_that_completes_the_rest():
    assert value("__ccm_runtime_optional", **ON) == ["persistentvolume-label-controller"]


def test_the_role_serves_its_own_certificate_or_the_users():
    def secret(**variables: Any) -> str:
        (found,) = [each["secret"]["secretName"] for each in pod(**variables)["volumes"] if each["name"] == "webhook"]
        return str(found)

    assert secret(**ON) == "cloud-controller-manager-webhook-self-signed"
    assert hook(**ON)["clientConfig"]["caBundle"] == "bundle-in-base64"
    assert secret(**OWN) == "cloud-controller-manager-webhook"
    bundle = base64.b64decode(hook(**OWN)["clientConfig"]["caBundle"]).decode()
    assert bundle == OWN["ccm_runtime_volume_webhook_ca_bundle"]


@pytest.mark.parametrize(
    ("variables", "policy"), [({}, "Ignore"), ({"ccm_runtime_volume_webhook_failure_policy": "Fail"}, "Fail")]
)
def test_the_api_server_waits_longer_than_the_webhook_and_then_follows_the_policy(
    variables: dict[str, Any], policy: str
):
    found = hook(**ON, **variables)
    assert found["failurePolicy"] == policy
    assert volume_webhook.DEADLINE + 1 <= found["timeoutSeconds"] <= 10
    assert found["sideEffects"] == "None", "a dry run asks it, too"


def test_the_check_of_the_role_is_the_runtimes():
    body = json.loads(json.dumps(value("__ccm_runtime_webhook_check")))
    volume = volume_webhook_rules.volume_of(
        {"operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "PersistentVolume"}, "object": body}
    )
    assert volume is not None and volume_webhook_rules.is_check({"dryRun": True}, volume)


def test_another_vendors_controller_gets_none_of_it():
    assert "webhook" not in str(pod(**ON, ccm_runtime_command=["/vendor"]))
