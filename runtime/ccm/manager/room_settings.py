# SPDX-License-Identifier: Apache-2.0
"""Takes the options apart: each room of a process gets its own settings, and declares their shape.

No option goes further than this file, and the controllers' own options, which `running_controllers` makes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ccm.controllers.controller_spec import ControllerSpec, Right
from ccm.engine.encodings import PROTOBUF
from ccm.options import feature_gates
from ccm.options.command_line import Options
from ccm.serving.authorization import Lifetimes
from ccm.serving.serving_settings import ClientSettings, PortSettings, ServingSettings

from . import rights_check
from .cloud_reload import CloudSettings
from .connect import ApiServerSettings
from .leadership import ElectionSettings


def cloud(options: Options) -> CloudSettings:
    return CloudSettings(options.cloud_provider, options.cloud_config, options.allow_untagged_cloud)


def api_server(options: Options) -> ApiServerSettings:
    return ApiServerSettings(
        options.kubeconfig,
        options.master,
        options.kube_api_qps,
        options.kube_api_burst,
        options.kube_api_wait,
        protobuf=options.kube_api_content_type == PROTOBUF,
    )


def election(options: Options) -> ElectionSettings:
    return ElectionSettings(
        main=options.leader_elect_resource_name if options.leader_elect else None,
        migration=options.leader_migration.leader_name if options.enable_leader_migration else None,
        namespace=options.leader_elect_resource_namespace,
        lease_duration=options.leader_elect_lease_duration,
        renew_deadline=options.leader_elect_renew_deadline,
        retry_period=options.leader_elect_retry_period,
        provider=options.cloud_provider,
        requested=options.controllers,
    )


def serving(options: Options) -> ServingSettings:
    return ServingSettings(
        secure=PortSettings(
            "--",
            options.bind_address,
            options.secure_port,
            options.tls(),
            options.permit_port_sharing,
            options.client_ca_file,
        ),
        clients=ClientSettings(
            authentication=options.authentication_kubeconfig,
            authorization=options.authorization_kubeconfig,
            skip_lookup=options.authentication_skip_lookup,
            tolerate_lookup_failure=options.authentication_tolerate_lookup_failure,
            lifetimes=Lifetimes(
                options.authentication_token_webhook_cache_ttl,
                options.authorization_webhook_cache_authorized_ttl,
                options.authorization_webhook_cache_unauthorized_ttl,
            ),
            open_paths=options.authorization_always_allow_paths,
        ),
        webhooks=PortSettings(
            "--webhook-",
            options.webhook_bind_address,
            options.webhook_secure_port,
            options.tls("webhook_"),
            options.permit_port_sharing,
            options.webhook_client_ca_file,
        ),
        names=options.webhooks if feature_gates.enabled(options.feature_gates, feature_gates.WEBHOOK) else (),
        configz=options.configz,
    )


def rights(options: Options, controllers: Iterable[ControllerSpec[Any]]) -> list[Right]:
    """All permissions that a process with these options and controllers needs."""
    return rights_check.needed(controllers, election(options).leases, client_ca=serving(options).needs_client_ca)
