# SPDX-License-Identifier: Apache-2.0
"""Selects the controllers, creates them from the options, and runs them together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ccm.base.cancellation import TaskGroup
from ccm.base.start_error import StartError
from ccm.cloud import Cloud
from ccm.controllers.controller_context import ControllerContext
from ccm.controllers.controller_registry import Unusable, look_up, refused
from ccm.controllers.controller_spec import ControllerSpec
from ccm.controllers.nodes.node import NodeController
from ccm.controllers.nodes.node_lifecycle import NodeLifecycleController
from ccm.controllers.services.drain_rules import Mode
from ccm.controllers.services.service import ServiceController
from ccm.controllers.shared.context import RUNNING
from ccm.options.command_line import Options

log = logging.getLogger(__name__)

_MANAGER = "cloud-controller-manager"
_SECTION = "OutOfTree.controllers"
FENCES, ORPHANS = "--fence-dead-nodes", "--delete-orphaned-load-balancers"
#: A flag, or a flag with a value -> whether the options have it, and the controller that does what it asks for.
_ASKS: dict[str, tuple[Callable[[Options], bool], str]] = {
    FENCES: (lambda options: options.fence_dead_nodes, NodeLifecycleController.name),
    "--refresh-node-labels=always": (lambda options: options.refresh_node_labels == "always", NodeController.name),
    f"--load-balancer-drain-nodes={Mode.CORDONED}": (
        lambda options: options.load_balancer_drain_nodes == Mode.CORDONED,
        ServiceController.name,
    ),
    ORPHANS: (lambda options: options.delete_orphaned_load_balancers, ServiceController.name),
}


class ConfiguredController(msgspec.Struct, frozen=True):
    """A controller and the argument of its constructor."""

    spec: ControllerSpec[Any]
    options: Any = None


def not_offered(requested: Iterable[str], cloud: Cloud) -> dict[str, str]:
    """Return the controllers of `--controllers` that the provider does not support -> the missing capability."""
    specs = [spec for name in requested if isinstance(spec := look_up(name), ControllerSpec)]
    return {spec.name: what for spec in specs if (what := spec.needs(cloud)) is not None}


def usable_controllers(options: Options, cloud: Cloud) -> dict[str, ConfiguredController]:
    """Return the controllers of `--controllers` that this provider and these options allow, by name. Raises StartError
    if their options cannot be used.

    A controller of another package that cannot be used is reported, and the others run. From here on, each controller
    has only its own options.
    """
    missing, usable = not_offered(options.controllers, cloud), {}
    if ServiceController.name in missing and (flags := _flags_about_classes(options)):
        raise StartError(
            f"{flags} cannot be used: provider {options.cloud_provider} has no {missing[ServiceController.name]}, so "
            "no Service would be served. Unset it, or configure the provider's load balancers"
        )
    for sentence in refused():
        log.error("%s", sentence)
    for name in options.controllers:
        spec = look_up(name)
        if isinstance(spec, Unusable):
            log.error("%s is not started: %s", name, spec.why)
        elif name in missing:
            log.warning("%s is not started: provider %s has no %s", name, options.cloud_provider, missing[name])
        elif (reason := spec.off(options)) is not None:
            log.info("%s is not started: %s", name, reason)
        else:
            usable[name] = ConfiguredController(spec, _options_of(spec, options))
    for level, sentence in without_effect(options, usable, missing):
        log.log(level, "%s", sentence)
    return usable


def without_effect(options: Options, runs: Collection[str], missing: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield the level of a log record and a sentence for each flag that has no effect.

    `runs`: the names of the controllers that run. `missing`: a controller of `--controllers` -> the capability that the
    provider does not have. The level is INFO if the provider could support the controller: then it was left out on
    purpose, as in a stage of the migration that initialises Nodes only.
    """
    for flag, (is_set, controller) in _ASKS.items():
        if not is_set(options) or controller in runs:
            continue
        if controller in missing:
            yield (
                logging.WARNING,
                (f"{flag} has no effect: provider {options.cloud_provider} has no {missing[controller]}"),
            )
        else:
            yield logging.INFO, f"{flag} has no effect here: {controller} does not run in this process"
    if options.fence_dead_nodes and options.safety().cap(1_000_000) == 0:
        yield logging.WARNING, f"{FENCES} has no effect: --node-deletion-cap={options.node_deletion_cap} allows none"
    if options.delete_orphaned_load_balancers and not options.orphan_audit_period:
        yield logging.WARNING, f"{ORPHANS} has no effect: --orphan-audit-period=0 never looks for them"


def _flags_about_classes(options: Options) -> str:
    """Return the flags that promise to serve certain Services, as they were set."""
    classes = [f"--load-balancer-class={','.join(options.load_balancer_class)}"] if options.load_balancer_class else []
    default = options.default_load_balancer_provider
    return " and ".join(classes + ([f"--default-load-balancer-provider={default}"] if default else []))


def _options_of(spec: ControllerSpec[Any], options: Options) -> Any:
    """Return the options for the controller's constructor, None if it takes none. Raises StartError if they are missing
    or contradict each other."""
    if spec.section is not None:
        if spec.name in options.sections:
            return options.sections[spec.name]
        try:
            return spec.section()
        except (TypeError, ValueError) as error:
            raise StartError(
                f"{spec.name} requires options: {error}. Set them in --config, {_SECTION}.{spec.name}"
            ) from None
    if spec.flags is None:
        return None
    try:
        return spec.flags(options)
    except ValueError as error:
        raise StartError(str(error)) from None


class RunningControllers:
    """Controllers that run together: those of one cloud, which has started, or those that run once for all clouds.
    Created when the process leads. `catches_up`: whether to make the caches catch up; False if the caller has done
    that.
    """

    def __init__(
        self, controllers: Iterable[ConfiguredController], context: ControllerContext, *, catches_up: bool = True
    ) -> None:
        self._made = [
            (controller.spec, controller.spec.make(context, controller.options)) for controller in controllers
        ]
        self._caches = list(context.caches.values()) if catches_up else []
        self._vouching = context.vouching if any(spec.vouching for spec, _ in self._made) else None

    async def run(self) -> None:
        """Run all controllers. If one fails, all stop, because a partly working leader would prevent others from
        leading.

        A watch may have been silently dead while this process was a standby. So first of all, every cache has to catch
        up with the present state; controllers wait for the caches that they use.
        """
        for cache in self._caches:
            cache.catch_up()
        try:
            async with TaskGroup() as tasks:
                if self._vouching is not None:
                    tasks.create_task(self._vouching.run(), name="vouching")
                for spec, controller in self._made:
                    RUNNING.labels(spec.label, _MANAGER).set(1)
                    tasks.create_task(controller.run(), name=spec.name)
                if not self._made:
                    await asyncio.Event().wait()
        finally:
            for spec, _ in self._made:
                RUNNING.labels(spec.label, _MANAGER).set(0)
            if self._made:
                log.info("stopped: %s", ", ".join(spec.name for spec, _ in self._made))
