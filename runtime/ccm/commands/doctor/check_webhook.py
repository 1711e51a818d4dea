# SPDX-License-Identifier: Apache-2.0
"""Checks the webhook of volumes: whether the API server calls it, and until when the API server trusts its certificate.
No I/O."""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Iterable, Sequence

from cryptography import x509
from msgspec import Struct, field

from ccm.engine.objects import ObjectMeta

from ..asking.cluster_objects import Pod
from .check_times import CERTIFICATES, expiry
from .diagnosis import Check, State

NAME = "webhooks"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
#: The suffix of the names that the role and the pages give to this project's webhooks.
OURS = ".ccm.outoftree.dev"


class ClientConfig(Struct, frozen=True, rename="camel"):
    ca_bundle: str = ""


class Webhook(Struct, frozen=True, rename="camel"):
    name: str = ""
    failure_policy: str = ""
    client_config: ClientConfig = field(default_factory=ClientConfig)


class Configuration(Struct, frozen=True):
    """A MutatingWebhookConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] = []


def are_served(pods: Iterable[Pod]) -> bool:
    """Return whether the controller's Pods serve webhooks. Otherwise their configurations are not read, and no right to
    read them is needed."""
    return any(container.is_ours and container.flag("webhooks") for pod in pods for container in pod.spec.containers)


def configured(configurations: Sequence[Configuration], now: datetime.datetime) -> list[Check]:
    """Report the webhooks of this project, and when their certificates expire. `configurations`: all configurations of
    the cluster."""
    checks = []
    for configuration in configurations:
        for webhook in configuration.webhooks:
            if webhook.name.endswith(OURS):
                name = f"{webhook.name} of MutatingWebhookConfiguration {configuration.metadata.name}"
                text = f"the API server asks {name}; without an answer: {webhook.failure_policy or 'Fail'}"
                checks += [Check(NAME, State.OK, text), *_authority(webhook, now)]
    if checks:
        return checks
    text = f"the controller serves webhooks, and no MutatingWebhookConfiguration has one whose name ends in {OURS}"
    return [Check(NAME, State.NOTE, text, "run site.yml, or create it as docs/how-to/webhooks.md shows")]


def _authority(webhook: Webhook, now: datetime.datetime) -> list[Check]:
    """Report when the API server's trust in a webhook ends. Of several certificates, the last to expire counts, because
    a renewed one is trusted together with its predecessor."""
    what = f"the certificate by which the API server trusts {webhook.name}"
    if not webhook.client_config.ca_bundle:
        return []  # the API server then trusts the system's CAs
    try:
        several = x509.load_pem_x509_certificates(base64.b64decode(webhook.client_config.ca_bundle, validate=True))
    except (binascii.Error, ValueError) as error:
        return [Check(CERTIFICATES, State.NOTE, f"{what}: cannot be read: {error}")]
    return [expiry(what, max(each.not_valid_after_utc for each in several), now)]
