# SPDX-License-Identifier: Apache-2.0
"""The webhooks that a process can serve: the framework's own, and those of the provider."""

from __future__ import annotations

from collections.abc import Mapping

from ccm.base.start_error import StartError
from ccm.cloud import Webhook
from ccm.gateway.gateway import Gateway

from .volumes.volume_webhook import VolumeWebhook

#: The name for `--webhooks`, and the path.
VOLUMES, VOLUMES_PATH = "persistentvolume-label", "/persistentvolume-label"


class Webhooks:
    """Raises StartError if a webhook of the provider has a name or path of the framework's."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._own: dict[str, Webhook] = {}
        if gateway.cloud.volumes is not None:
            self._own[VOLUMES] = Webhook(VOLUMES_PATH, VolumeWebhook(gateway).handle)
        for name, webhook in gateway.cloud.webhooks.items():
            if name in self._own or webhook.path in {own.path for own in self._own.values()}:
                raise StartError(
                    f"the provider {gateway.cloud.name!r} has a webhook {name!r} at {webhook.path}, which is a name or "
                    "path of the framework's own webhooks: rename the provider's"
                )

    def offered(self) -> Mapping[str, Webhook]:
        """Return the webhooks by name. The provider's are those of the current cloud, which a reload replaces."""
        return {**self._gateway.cloud.webhooks, **self._own}
