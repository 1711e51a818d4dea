# SPDX-License-Identifier: Apache-2.0
"""Pretends to cinder's API that each zone of $RIG_ZONES has a volume service.

No volume service runs. A requested volume is recorded with its zone and never created: it stays `creating`.
"""

import os

from cinder import context, objects
from cinder.objects import base
from cinder.volume import rpcapi


def _announce(zones: list[str]) -> None:
    admin = context.get_admin_context()
    known = {each.availability_zone for each in objects.ServiceList.get_all_by_topic(admin, rpcapi.VolumeAPI.TOPIC)}
    for zone in zones:
        if zone not in known:
            objects.Service(
                admin,
                host=f"rig@{zone}",
                binary=rpcapi.VolumeAPI.BINARY,
                topic=rpcapi.VolumeAPI.TOPIC,
                report_count=0,
                availability_zone=zone,
                rpc_current_version=rpcapi.VolumeAPI.RPC_API_VERSION,
                object_current_version=base.OBJ_VERSIONS.get_current(),
            ).create()


_announce(os.environ["RIG_ZONES"].split(","))
