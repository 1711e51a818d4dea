# SPDX-License-Identifier: Apache-2.0
"""A project of Compute Engine with what Nodes need: instances in zones, in the API's form."""

from __future__ import annotations

import itertools
from typing import Any

Row = dict[str, Any]

PROJECT, NUMBER = "kube-project", "123456789012"
ZONES = ("europe-west1-b", "europe-west1-c", "europe-west1-d", "us-east1-b")
API = "https://www.googleapis.com/compute/v1"


class Project:
    """A project. `doubts`: zone -> the warning in the zone's part of a listing. `unreachables`: the zones that a
    listing reports as unreachable.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.doubts: dict[str, str] = {}
        self.unreachables: list[str] = []
        self._numbers = itertools.count(1)

    def add(self, name: str, zone: str = ZONES[0], **more: Any) -> Row:
        number = next(self._numbers)
        place = f"{API}/projects/{PROJECT}/zones/{zone}"
        row: Row = {
            "kind": "compute#instance",
            "id": str(8270000000000000000 + number),
            "creationTimestamp": "2026-01-02T03:04:05.678-07:00",
            "name": name,
            "zone": place,
            "machineType": f"{place}/machineTypes/e2-standard-4",
            "status": "RUNNING",
            "selfLink": f"{place}/instances/{name}",
            "labels": {"cluster": "kube"},
            "tags": {"items": ["kube"], "fingerprint": "42WmSpB8rSM="},
            "canIpForward": True,
            "networkInterfaces": [
                {
                    "kind": "compute#networkInterface",
                    "name": "nic0",
                    "network": f"{API}/projects/{PROJECT}/global/networks/kube",
                    "subnetwork": f"{API}/projects/{PROJECT}/regions/{zone[:-2]}/subnetworks/kube",
                    "networkIP": f"10.132.{number // 250}.{number % 250 + 2}",
                    "stackType": "IPV4_ONLY",
                    "accessConfigs": [
                        {
                            "kind": "compute#accessConfig",
                            "type": "ONE_TO_ONE_NAT",
                            "name": "External NAT",
                            "natIP": f"198.51.100.{number % 250 + 2}",
                            "networkTier": "PREMIUM",
                        }
                    ],
                }
            ],
        }
        row.update(more)
        self.rows[zone, name] = row
        return row

    def free_zone(self, name: str) -> str:
        """Return a zone without an instance of this name, because names are unique in a zone."""
        return next(zone for zone in ZONES if (zone, name) not in self.rows)
