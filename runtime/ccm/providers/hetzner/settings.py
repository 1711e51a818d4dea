# SPDX-License-Identifier: Apache-2.0
"""Parses the configuration: the variables of hcloud-cloud-controller-manager, from the environment or a file. Pure.

The file (`--cloud-config`) has one `NAME=value` on each line. All problems are reported at once, with file and line if
they are in the file. The token is not reported as missing if it may be in a line that cannot be read. Values may be
secrets, so no message quotes a value.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit.setting_kinds import (
    count,
    deprecated,
    duration,
    key,
    networks,
    number,
    one_of,
    text,
    url,
)

from .label_selectors import CLOUD_VALUES, Selector

#: The key that sets `request_timeout`, for messages.
TIMEOUT = "HCLOUD_REQUEST_TIMEOUT"
LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*)")
PREFIXES = ("HCLOUD_", "ROBOT_")
#: The texts that Go's strconv.ParseBool accepts, which the original uses.
TRUE, FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


def boolean(raw: str) -> bool:
    if raw not in TRUE + FALSE:
        raise ValueError("expected true or false")
    return raw in TRUE


def seconds(raw: str) -> int:
    """Return a duration of whole seconds, as the API takes it. Raises ValueError."""
    if not (value := duration(raw)).is_integer():
        raise ValueError("expected a duration in whole seconds, such as 15s")
    return int(value)


def subnet(raw: str) -> str:
    if len(subnets := networks(raw)) != 1:
        raise ValueError("expected one CIDR")
    return str(subnets[0])


def selector(raw: str) -> str:
    try:
        Selector.parse(raw, values=CLOUD_VALUES)
    except ValueError as error:
        raise ValueError(f"expected {error}") from None
    return raw.strip()


def algorithm(raw: str) -> str:
    return one_of("round_robin", "least_connections")(raw.strip().lower())


#: Kind -> its name in the documentation.
KINDS: dict[Callable[[str], Any], str] = {
    text: "text",
    boolean: "true or false",
    seconds: "duration",
    duration: "duration",
    number: "number",
    count: "whole number",
    url: "URL",
    subnet: "CIDR",
    selector: "label selector",
    algorithm: "`round_robin` or `least_connections`",
}


@dataclass(frozen=True)
class Variables:
    """Each field is the variable of the same name, in capitals. None: not set, so the default of the cloud or of this
    provider applies."""

    hcloud_token: str = key("", "The API token of the project, with permission to read and write.", secret=True)
    hcloud_token_file: str = key("", "The file that contains the token. Changes of the file are noticed.")
    hcloud_endpoint: str = key("https://api.hetzner.cloud/v1", "The API's URL.", url)
    hcloud_network: str = key("", "The name or ID of the private network for InternalIPs, routes and load balancers.")
    hcloud_network_routes_enabled: bool = key(True, "Whether to write routes into the network.", boolean)
    hcloud_instances_address_family: str = key(
        "ipv4", "Which public addresses a Node has.", one_of("ipv4", "ipv6", "dualstack")
    )
    hcloud_instances_zone_label_enabled: bool = key(True, "Whether a Node gets the label of its zone.", boolean)
    hcloud_load_balancers_enabled: bool = key(True, "Whether to serve Services of type LoadBalancer.", boolean)
    hcloud_load_balancers_location: str = key("", "The location of new load balancers.")
    hcloud_load_balancers_network_zone: str = key("", "The network zone of new load balancers.")
    hcloud_load_balancers_type: str = key("", "The type of load balancers. By default, new ones are `lb11`.")
    hcloud_load_balancers_algorithm_type: str = key("", "How a load balancer chooses a target.", algorithm)
    hcloud_load_balancers_disable_ipv6: bool = key(False, "Whether the status omits the IPv6 address.", boolean)
    hcloud_load_balancers_disable_public_network: bool | None = key(
        None, "Whether to switch off the public interface.", boolean
    )
    hcloud_load_balancers_disable_private_ingress: bool = key(
        False, "Whether the status omits the private address.", boolean
    )
    hcloud_load_balancers_use_private_ip: bool = key(False, "Whether traffic goes to private addresses.", boolean)
    hcloud_load_balancers_uses_proxyprotocol: bool | None = key(None, "Whether to use the PROXY protocol.", boolean)
    hcloud_load_balancers_private_subnet_ip_range: str = key("", "The subnet of load balancers.", subnet)
    hcloud_load_balancers_health_check_interval: int | None = key(None, "The time between two checks.", seconds)
    hcloud_load_balancers_health_check_timeout: int | None = key(None, "How long a check may take.", seconds)
    hcloud_load_balancers_health_check_retries: int | None = key(None, "How many checks in a row must fail.", count)
    # Variables that the original does not have.
    hcloud_load_balancers_adopt_by_name: bool = key(
        False, "Whether a Service may take over an unmarked load balancer that has its name.", boolean, ours=True
    )
    hcloud_load_balancers_target_selector: str = key(
        "",
        "Load balancers send traffic to all servers that match this selector, instead of to Nodes.",
        selector,
        ours=True,
    )
    hcloud_request_timeout: float = key(15.0, "How long to wait for one answer.", duration, ours=True)
    hcloud_calls_per_second: float = key(
        1.0, "How many calls start in a second, on average. A project may make 3,600 an hour.", number, ours=True
    )
    hcloud_burst: int = key(
        600, "How many calls may start at once after a pause.", count, ours=True, former="HCLOUD_CALLS_BURST"
    )


_FRAMEWORK = "the framework does this by itself"
_ROBOT = "Nodes of Robot servers are left alone"
#: Variables of the original that have no effect here -> the reason.
IGNORED = {
    "HCLOUD_DEBUG": "use --v",
    "HCLOUD_METRICS_ENABLED": "--secure-port serves the metrics",
    "HCLOUD_METRICS_ADDRESS": "--secure-port serves the metrics",
    "HCLOUD_SERVER_CACHE_MODE": _FRAMEWORK,
    "HCLOUD_SERVER_CACHE_MAX_AGE": _FRAMEWORK,
    "HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK": "routes outside --cluster-cidr are never changed, wherever ccm runs",
    "ROBOT_USER": _ROBOT,
    "ROBOT_USER_FILE": _ROBOT,
    "ROBOT_PASSWORD": _ROBOT,
    "ROBOT_PASSWORD_FILE": _ROBOT,
    "ROBOT_CACHE_TIMEOUT": _ROBOT,
    "ROBOT_RATE_LIMIT_WAIT_TIME": _ROBOT,
    "ROBOT_FORWARD_INTERNAL_IPS": _ROBOT,
}
ROBOT_REFUSED = (
    "Robot servers are not supported: set it to false, and their Nodes (hrobot://) are left alone, or keep "
    "hcloud-cloud-controller-manager"
)
NO_TOKEN = "HCLOUD_TOKEN: it is missing: set it to an API token of the project, or HCLOUD_TOKEN_FILE to its file"
_FIELDS = {field.name.upper(): field for field in dataclasses.fields(Variables)}
_FORMER = {field.metadata["former"]: name for name, field in _FIELDS.items() if field.metadata["former"]}


@dataclass(frozen=True)
class _Variable:
    """The value of a variable. `where`: its name, after file and line if it is from the file; for messages."""

    name: str
    value: str
    where: str


@dataclass(frozen=True)
class Settings:
    """The configuration, parsed. `ignored`: sentences about variables without effect, and other warnings."""

    variables: Variables
    source: str
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Raises ConfigError with all problems."""
        problems: list[str] = []
        ignored: list[str] = []
        every = [*_in_file(config, problems), *_in_environment(config)]
        has_unread = bool(problems)
        by_name = _merged([_renamed(each, ignored) for each in every], problems)
        values: dict[str, Any] = {}
        for variable in by_name.values():
            if variable.name == "ROBOT_ENABLED":
                problems += _robot(variable)
            elif variable.name in IGNORED:
                ignored.append(f"{variable.where} has no effect: {IGNORED[variable.name]}")
            elif variable.name not in _FIELDS:
                sentence = f"{variable.where}: unknown variable{_similar(variable.name)}"
                # Kubernetes itself sets variables with the names of Services, so an unknown one of the environment is
                # ignored.
                (problems if variable.where != variable.name else ignored).append(sentence)
            elif variable.value:
                try:
                    values[variable.name.lower()] = _FIELDS[variable.name].metadata["kind"](variable.value)
                except ValueError as error:
                    problems.append(f"{variable.where}: {error}")
        variables = Variables(**values)
        problems += _contradictions(variables, by_name)
        if not has_unread and not variables.hcloud_token and not variables.hcloud_token_file:
            problems.append(NO_TOKEN)
        if problems:
            raise ConfigError(problems)
        ignored += _without_network(variables, by_name)
        return cls(variables, config.source, tuple(ignored))


def _in_file(config: ProviderConfig, problems: list[str]) -> Iterator[_Variable]:
    for number_, line in enumerate(config.text.removeprefix("\ufeff").split("\n"), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        at = f"{config.source}: line {number_}"
        if (match := LINE.fullmatch(line)) is None:
            problems.append(f"{at}: expected NAME=value, or a comment")
            continue
        value = match["value"].strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        yield _Variable(match["name"], value, f"{at}: {match['name']}")


def _in_environment(config: ProviderConfig) -> Iterator[_Variable]:
    for name, value in sorted(config.environment.items()):
        if name.startswith(PREFIXES):
            yield _Variable(name, value, name)


def _renamed(variable: _Variable, warnings: list[str]) -> _Variable:
    """Return the variable under its present name, with a warning if it has a former one."""
    if variable.name not in _FORMER:
        return variable
    name = _FORMER[variable.name]
    warnings.append(deprecated(variable.where, name))
    return dataclasses.replace(variable, name=name)


def _merged(every: list[_Variable], problems: list[str]) -> dict[str, _Variable]:
    by_name: dict[str, _Variable] = {}
    for variable in every:
        if (first := by_name.setdefault(variable.name, variable)).value != variable.value:
            there = "in the environment" if variable.where == variable.name else "again"
            problems.append(f"{first.where}: it is set {there} with another value: remove one of them")
    return by_name


def _robot(variable: _Variable) -> list[str]:
    try:
        return [f"{variable.where}: {ROBOT_REFUSED}"] if variable.value and boolean(variable.value) else []
    except ValueError as error:
        return [f"{variable.where}: {error}"]


def _contradictions(settings: Variables, variables: Mapping[str, _Variable]) -> Iterator[str]:
    def at(name: str) -> str:
        return variables[name].where if name in variables else name

    if settings.hcloud_token and settings.hcloud_token_file:
        yield f"{at('HCLOUD_TOKEN_FILE')}: HCLOUD_TOKEN is set, too: remove one of them"
    if not re.fullmatch(r"[!-~]*", settings.hcloud_token):
        yield f"{at('HCLOUD_TOKEN')}: a token has only printable ASCII characters and no spaces"
    if settings.hcloud_load_balancers_location and settings.hcloud_load_balancers_network_zone:
        zone = at("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE")
        yield f"{zone}: HCLOUD_LOAD_BALANCERS_LOCATION is set, too: remove one of them"


def _without_network(settings: Variables, variables: Mapping[str, _Variable]) -> Iterator[str]:
    """Yield warnings about variables that need a network. hcloud-cloud-controller-manager starts with them, too."""
    if settings.hcloud_network:
        return
    if settings.hcloud_load_balancers_private_subnet_ip_range:
        where = variables["HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE"].where
        yield f"{where} has no effect: it needs HCLOUD_NETWORK"
    if settings.hcloud_load_balancers_use_private_ip:
        where = variables["HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP"].where
        yield f"{where}: it needs HCLOUD_NETWORK, so Services without the annotation use-private-ip are refused"


def _similar(name: str) -> str:
    similar = difflib.get_close_matches(name, [*_FIELDS, *IGNORED], 1)
    return f"; did you mean {similar[0]}?" if similar else ""
