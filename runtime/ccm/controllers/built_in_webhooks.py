# SPDX-License-Identifier: Apache-2.0
"""The webhooks that a process can serve: the framework's own, and those of its providers."""

from __future__ import annotations

from collections.abc import Mapping

from ccm.base.start_error import StartError
from ccm.cloud import Webhook
from ccm.gateway.gateway import Gateway

from .volumes.volume_webhook import VolumeWebhook

#: The name for `--webhooks`, and the path.
VOLUMES, VOLUMES_PATH = "persistentvolume-label", "/persistentvolume-label"


class Webhooks:
    """The webhooks of one cloud or of several. Raises StartError if two webhooks have the same name or path."""

    def __init__(self, *gateways: Gateway) -> None:
        self._gateways = gateways
        self._own: dict[str, Webhook] = {}
        with_volumes = [each for each in gateways if each.cloud.volumes is not None]
        if with_volumes:
            self._own[VOLUMES] = Webhook(VOLUMES_PATH, VolumeWebhook(*with_volumes).handle)
        owners = dict.fromkeys(self._own, "the framework")
        paths = {webhook.path: "the framework" for webhook in self._own.values()}
        for gateway in gateways:
            provider = gateway.cloud.name
            for name, webhook in gateway.cloud.webhooks.items():
                if other := owners.get(name) or paths.get(webhook.path):
                    raise StartError(
                        f"the provider {provider!r} has a webhook {name!r} at {webhook.path}, but a webhook of {other} "
                        "already has this name or path: rename the provider's"
                    )
                owners[name] = paths[webhook.path] = f"the provider {provider!r}"

    def offered(self) -> Mapping[str, Webhook]:
        """Return the webhooks by name. A provider's webhooks come from its current `Cloud`, which a reload replaces."""
        theirs = {name: webhook for each in self._gateways for name, webhook in each.cloud.webhooks.items()}
        return {**theirs, **self._own}
