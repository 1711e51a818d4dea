# SPDX-License-Identifier: Apache-2.0
"""Divides the options: each part of a process gets settings of its own, in a type that the part declares.

In a controller process, only `process`, this file and `running_controllers` see all options. `running_controllers`
creates the options of each controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ccm.base.start_error import StartError
from ccm.cloud import Cloud
from ccm.controllers.controller_registry import BUILT_IN
from ccm.controllers.controller_spec import ControllerSpec, Right
from ccm.controllers.services.class_rules import ServedClasses, together
from ccm.controllers.services.service import ServiceController
from ccm.engine.encodings import PROTOBUF
from ccm.options import feature_gates
from ccm.options.clouds import CloudFlags, division
from ccm.options.command_line import Options
from ccm.serving.authorization import Lifetimes
from ccm.serving.serving_settings import ClientSettings, PortSettings, ServingSettings

from . import rights_check
from .cloud_reload import CloudSettings
from .connect import ApiServerSettings
from .leadership import ElectionSettings


def cloud(options: Options) -> CloudSettings:
    return CloudSettings(options.cloud_provider, options.cloud_config, options.allow_untagged_cloud)


def clouds(options: Options) -> list[CloudSettings]:
    """Return the settings of each provider's cloud."""
    if not options.are_of_several:
        return [cloud(options)]
    return [
        CloudSettings(each.provider, each.config, options.allow_untagged_cloud, name=each.provider)
        for each in options.clouds()
    ]


def for_each(options: Options, clouds: Sequence[Cloud]) -> list[Options]:
    """Return the options of each cloud's controllers, as if it were the only cloud, with its part of the Services.

    `clouds`: the clouds in the order of `--cloud-provider`. Raises StartError if Services or CIDRs cannot be divided
    among them.
    """
    if not options.are_of_several:
        return [options]
    named = options.clouds()
    service = BUILT_IN[ServiceController.name]
    able = {each.provider: service.needs(cloud) is None for each, cloud in zip(named, clouds, strict=True)}
    parts, problems = division(options.load_balancer_class, options.default_load_balancer_provider, able)
    if problems and service.name in options.controllers:
        raise StartError("\n  - ".join(["the Services cannot be divided among the providers:", *problems]))
    with_nodes = [each.provider for each, cloud in zip(named, clouds, strict=True) if cloud.instances is not None]
    if problems := [
        f"--cloud-cluster-cidr={provider}: the provider has no instances, so no Node is known to belong to it"
        for provider in options.cloud_ranges()
        if provider not in with_nodes
    ]:
        raise StartError("\n".join(problems))
    return [_of(options, each, parts.get(each.provider)) for each in named]


def _of(options: Options, cloud: CloudFlags, services: ServedClasses | None) -> Options:
    """Return the options of one cloud. `services`: which Services it serves, None for none."""
    return replace(
        options,
        cloud_provider=cloud.provider,
        cloud_config=cloud.config,
        cloud_nodes=(),
        load_balancer_class=(),
        default_load_balancer_provider="",
        division=services,
        controllers=tuple(
            name for name in options.controllers if services is not None or name != ServiceController.name
        ),
    )


def served_classes(own: Sequence[Options]) -> ServedClasses:
    """Return which Services any of the clouds serves. `own`: the result of `for_each`."""
    return together(each.served_classes() for each in own if len(own) == 1 or each.division is not None)


def declarations(options: Options) -> dict[str, tuple[str, ...]]:
    """Return cloud -> the patterns of its Nodes' names."""
    return {each.provider: each.nodes for each in options.clouds()}


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
    """Return the permissions without which a process with these options and controllers does not start."""
    return rights_check.needed(controllers, election(options).leases, client_ca=serving(options).needs_client_ca)
