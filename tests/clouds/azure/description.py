# SPDX-License-Identifier: Apache-2.0
"""Compares calls and answers with Azure's published API description, through Microsoft's packages azure-mgmt-compute
and azure-mgmt-network, which are generated from it. Requests must be those that the packages build for the same
operation, and answers must have the names and types that the packages declare."""

from __future__ import annotations

import datetime
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import typing_extensions
from azure.mgmt.compute import models as compute_models
from azure.mgmt.compute import types as compute
from azure.mgmt.compute.operations import _operations as compute_requests
from azure.mgmt.network import models as network_models
from azure.mgmt.network import types as network
from azure.mgmt.network.operations import _operations as network_requests

from ccm.providers.azure.api import COMPUTE, NETWORK
from tests.clouds.stand_in import Exchange

MODELS = {compute.__name__: vars(compute_models), network.__name__: vars(network_models)}


@dataclass(frozen=True)
class Operation:
    """An operation. `build`: the package's function for the request. `version`: the API version to pass to that
    function, "" if the function takes none. `shape`: the type of the answer, or of each value in a listing.
    """

    build: Callable[..., Any]
    shape: type
    version: str = ""
    is_list: bool = False

    @property
    def name(self) -> str:
        return self.build.__name__.removeprefix("build_").removesuffix("_request")


_C, _N = compute_requests, network_requests
#: Path -> the operation.
OPERATIONS: dict[str, Operation] = {
    "/Microsoft.Compute/virtualMachines": Operation(
        _C.build_virtual_machines_list_request, compute.VirtualMachine, COMPUTE, True
    ),
    "/Microsoft.Compute/virtualMachines/(?P<vm_name>[^/]+)": Operation(
        _C.build_virtual_machines_get_request, compute.VirtualMachine, COMPUTE
    ),
    "/Microsoft.Compute/virtualMachineScaleSets": Operation(
        _C.build_virtual_machine_scale_sets_list_request, compute.VirtualMachineScaleSet, COMPUTE, True
    ),
    "/Microsoft.Compute/virtualMachineScaleSets/(?P<virtual_machine_scale_set_name>[^/]+)/virtualMachines": Operation(
        _C.build_virtual_machine_scale_set_vms_list_request, compute.VirtualMachineScaleSetVM, COMPUTE, True
    ),
    "/Microsoft.Compute/virtualMachineScaleSets/(?P<vm_scale_set_name>[^/]+)/virtualMachines/(?P<instance_id>[^/]+)": (
        Operation(_C.build_virtual_machine_scale_set_vms_get_request, compute.VirtualMachineScaleSetVM, COMPUTE)
    ),
    "/Microsoft.Compute/virtualMachineScaleSets/(?P<virtual_machine_scale_set_name>[^/]+)/networkInterfaces": Operation(
        _N.build_network_interfaces_list_virtual_machine_scale_set_network_interfaces_request,
        network.NetworkInterface,
        is_list=True,
    ),
    "/Microsoft.Compute/virtualMachineScaleSets/(?P<virtual_machine_scale_set_name>[^/]+)/virtualMachines/"
    "(?P<virtualmachine_index>[^/]+)/networkInterfaces": Operation(
        _N.build_network_interfaces_list_virtual_machine_scale_set_vm_network_interfaces_request,
        network.NetworkInterface,
        is_list=True,
    ),
    "/Microsoft.Compute/virtualMachineScaleSets/(?P<virtual_machine_scale_set_name>[^/]+)/publicipaddresses": Operation(
        _N.build_public_ip_addresses_list_virtual_machine_scale_set_public_ip_addresses_request,
        network.PublicIPAddress,
        is_list=True,
    ),
    "/Microsoft.Network/networkInterfaces": Operation(
        _N.build_network_interfaces_list_request, network.NetworkInterface, NETWORK, True
    ),
    "/Microsoft.Network/networkInterfaces/(?P<network_interface_name>[^/]+)": Operation(
        _N.build_network_interfaces_get_request, network.NetworkInterface, NETWORK
    ),
    "/Microsoft.Network/publicIPAddresses": Operation(
        _N.build_public_ip_addresses_list_request, network.PublicIPAddress, NETWORK, True
    ),
    "/Microsoft.Network/publicIPAddresses/(?P<public_ip_address_name>[^/]+)": Operation(
        _N.build_public_ip_addresses_get_request, network.PublicIPAddress, NETWORK
    ),
}
#: The path of the listing of all machines of a subscription.
ALL = r"/subscriptions/(?P<subscription_id>[^/]+)/providers/Microsoft.Compute/virtualMachines"
ALL_MACHINES = Operation(_C.build_virtual_machines_list_all_request, compute.VirtualMachine, COMPUTE, True)
GROUP = r"/subscriptions/(?P<subscription_id>[^/]+)/resourceGroups/(?P<resource_group_name>[^/]+)/providers"


def operation_of(exchange: Exchange) -> tuple[Operation, dict[str, str]] | None:
    if match := re.fullmatch(ALL, exchange.path):
        return ALL_MACHINES, match.groupdict()
    for path, operation in OPERATIONS.items():
        if match := re.fullmatch(GROUP + path, exchange.path):
            return operation, match.groupdict()
    return None


def problems(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence about each part of a call that does not fit the description."""
    if exchange.method != "GET" or (found := operation_of(exchange)) is None:
        yield f"{exchange}: not in the description"
        return
    operation, arguments = found
    yield from _other_request(exchange, operation, arguments)
    answer = exchange.answer
    if exchange.status != 200:
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict) or not isinstance(error.get("code"), str) or set(error) - {"code", "message"}:
            yield f"{operation.name}: {exchange.status} with {answer!r}"
    elif not operation.is_list:
        yield from _unfit(answer, operation.shape, operation.name)
    elif (
        not isinstance(answer, dict) or not isinstance(answer.get("value"), list) or set(answer) - {"value", "nextLink"}
    ):
        yield f"{operation.name}: no list"
    else:
        for row in answer["value"]:
            yield from _unfit(row, operation.shape, operation.name)


def _other_request(exchange: Exchange, operation: Operation, arguments: Mapping[str, str]) -> Iterator[str]:
    """Yield how the request that Microsoft's client would send differs."""
    query = {name: value for name, value in exchange.query.items() if name != "$skiptoken"}
    expand = {"expand": query["$expand"]} if "$expand" in query else {}
    if query.get("$expand", "instanceView") not in set(compute_models.InstanceViewTypes):
        yield f"{operation.name}: $expand is {query['$expand']}"
    if operation.name == "virtual_machines_list" and "$expand" in query and "$filter" not in query:
        yield f"{operation.name}: the description says that $expand needs a $filter"
    expand |= {"status_only": query["statusOnly"]} if "statusOnly" in query else {}
    version = {"api_version": operation.version} if operation.version else {}
    try:
        wanted = operation.build(**arguments, **expand, **version)
    except TypeError as error:
        yield f"{operation.name}: {error}"
        return
    path, _, text = wanted.url.partition("?")
    parameters = dict(part.split("=", 1) for part in text.split("&")) if text else {}
    if path != exchange.path or {name.replace("%24", "$"): value for name, value in parameters.items()} != query:
        yield f"{operation.name}: {exchange.path} {query}, not {wanted.url}"


@cache
def _fields(shape: type) -> dict[str, Any]:
    module = {compute.__name__: compute, network.__name__: network}[shape.__module__]
    return typing.get_type_hints(shape, {**MODELS[module.__name__], **vars(module)})


def _unfit(value: Any, shape: Any, where: str) -> Iterator[str]:
    origin = typing.get_origin(shape)
    if origin is typing.Union or origin is types.UnionType:
        choices = typing.get_args(shape)
        enums = [each for each in choices if isinstance(each, type) and hasattr(each, "__members__")]
        if enums and isinstance(value, str):
            if not any(value in {member.value for member in each} for each in enums):
                yield f"{where}: is {value!r}"
        elif all(list(_unfit(value, each, where)) for each in choices):
            yield f"{where}: is {value!r}"
    elif typing_extensions.is_typeddict(shape):
        if not isinstance(value, dict):
            yield f"{where}: is {value!r}"
            return
        fields = _fields(shape)
        for name, part in value.items():
            if name in fields:
                yield from _unfit(part, fields[name], f"{where}.{name}")
            else:
                yield f"{where}: {name} is unknown"
    elif origin is list:
        if not isinstance(value, list):
            yield f"{where}: is {value!r}"
            return
        for part in value:
            yield from _unfit(part, typing.get_args(shape)[0], f"{where}[]")
    elif origin is dict or shape is dict:
        if not isinstance(value, dict):
            yield f"{where}: is {value!r}"
    elif origin is not None and typing.get_args(shape):  # Required[...] and the like
        yield from _unfit(value, typing.get_args(shape)[0], where)
    elif shape is Any:
        return
    elif shape is datetime.datetime:
        if not isinstance(value, str):
            yield f"{where}: is {value!r}"
    elif not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        yield f"{where}: is {value!r}"
