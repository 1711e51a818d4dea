# SPDX-License-Identifier: Apache-2.0
"""Tables of cloud-provider-openstack."""

from __future__ import annotations

import dataclasses
import ipaddress
import uuid
from collections.abc import Mapping
from typing import Any

from ccm.cloud import Address, AddressType, Backend, Invalid, LoadBalancerSpec, Port
from ccm.cloud.toolkit import backend_addresses
from ccm.cloud.toolkit.annotation_reader import selector
from ccm.cloud.toolkit.setting_kinds import networks
from ccm.providers.openstack import instance_rules
from ccm.providers.openstack.annotations import PREFIX, Annotations
from ccm.providers.openstack.load_balancers import (
    feature_rules,
    listener_rules,
    load_balancer_owners,
    load_balancer_rules,
    security_groups,
)
from ccm.providers.openstack.settings_sections import EVERY, LoadBalancerClass, LoadBalancerSection, Networking

from ..suite import ERROR, Row, Suite, outcome

SUITE = Suite("openstack", "pkg/openstack")
ALL = feature_rules.Features()
#: Annotations whose values are IDs; the peer's tests have texts there, which Octavia would refuse.
_IDS = ("subnet-id", "network-id")


def identity(text: str) -> str:
    """Return an ID for a text of the peer's tests, "" for ""."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, text)) if text else ""


def annotations_of(service: Any) -> dict[str, str]:
    said = service.at("ObjectMeta", "Annotations", default={}) if service is not None else {}
    return {key: identity(said[key]) if key.endswith(_IDS) else said[key] for key in said}


def spec(service: Any = None, **more: Any) -> LoadBalancerSpec:
    base = {
        "cluster": "kubernetes",
        "uid": service.at("ObjectMeta", "UID", default="u") if service is not None else "u",
        "namespace": service.at("ObjectMeta", "Namespace", default="n") if service is not None else "n",
        "name": service.at("ObjectMeta", "Name", default="s") if service is not None else "s",
        "ports": (Port("", "TCP", 80, 30080),),
        "annotations": annotations_of(service),
    }
    return LoadBalancerSpec(**(base | more))


_OPTIONS = {"SubnetID": "subnet_id", "NetworkID": "network_id", "MemberSubnetID": "member_subnet_id"}


def section(options: Mapping[str, Any]) -> tuple[LoadBalancerSection, dict[str, LoadBalancerClass]]:
    """Return `[LoadBalancer]` and its classes from the peer's struct."""
    ids = {_OPTIONS[name]: identity(options[name]) for name in options if name in _OPTIONS}
    more = {"lb_method": options["LBMethod"]} if "LBMethod" in options else {}
    if "LBProvider" in options:
        more["lb_provider"] = options["LBProvider"]
    if "EnableIngressHostname" in options:
        more["enable_ingress_hostname"] = options["EnableIngressHostname"]
        more["ingress_hostname_suffix"] = options["IngressHostnameSuffix"]
    classes = options.get("LBClasses") or {}
    return LoadBalancerSection(allowed_annotations=(EVERY,), **ids, **more), {
        name: LoadBalancerClass(**{_OPTIONS[key]: identity(classes[name][key]) for key in classes[name]})
        for name in classes
    }


def desired(service: Any, options: Mapping[str, Any], **more: Any) -> Any:
    """Return the desired state, or ERROR if our function refuses the Service."""
    return outcome(lambda: load_balancer_rules.desired_load_balancer(spec(service, **more), *section(options)), Invalid)


def backend(node: Row, **more: Any) -> Backend:
    addresses = tuple(
        Address(AddressType(address["Type"]), address["Address"]) for address in node.at("Status", "Addresses") or ()
    )
    return Backend(node.at("ObjectMeta", "Name", default="node"), "", addresses, **more)


def text_of(address: Address) -> tuple[str, str]:
    return address.type.value, address.address


@SUITE.table("instances_test.go::Test_instanceIDFromProviderID", rows=5)
def provider_id_with_region(row: Row) -> tuple[Any, Any]:
    """The peer's test uses IDs of a form that nova does not use, so they are replaced."""
    spelt = row["args"]["providerID"].replace("testInstanceID", identity("testInstanceID"))
    expected = None if row["wantErr"] else identity(row["wantInstanceID"])
    return expected, instance_rules.server_id(spelt, row["wantRegion"] or "us-east-1")


@SUITE.table("openstack_test.go::TestInstanceIDFromProviderID", rows=6, variable="testCases")
def provider_id(row: Row) -> tuple[Any, Any]:
    expected = None if row.get("fail") else row["instanceID"]
    return expected, instance_rules.server_id(row["providerID"], row["region"])


@SUITE.table("loadbalancer_test.go::TestLbaasV2_GetLoadBalancerName", rows=3)
def load_balancer_name(row: Row) -> tuple[Any, Any]:
    arguments = row["testArgs"]
    meta = (arguments.get("service") or {}).get("ObjectMeta") or {}
    names = arguments.get("clusterName", ""), meta.get("Namespace", ""), meta.get("Name", "")
    return row["expected"], load_balancer_owners.load_balancer_name(*names)


@SUITE.table("loadbalancer_test.go::Test_getSecurityGroupName", rows=3)
def security_group_name(row: Row) -> tuple[Any, Any]:
    meta = row["service"].at("ObjectMeta", default={})
    service = spec(uid=meta.get("UID", ""), namespace=meta.get("Namespace", ""), name=meta.get("Name", ""))
    return row["expected"], security_groups.group_name(service)


_RULE = {
    "Direction": "direction",
    "EtherType": "ethertype",
    "Protocol": "protocol",
    "PortRangeMin": "port_range_min",
    "PortRangeMax": "port_range_max",
    "RemoteIPPrefix": "remote_ip_prefix",
    "RemoteGroupID": "remote_group_id",
    "ID": "id",
}


def _rules(rows: Any) -> list[dict[str, Any]]:
    """Return the rules in neutron's form, with protocols in lower case."""
    found = [{ours: row[name] for name, ours in _RULE.items() if row.get(name)} for row in rows or ()]
    return [rule | {"protocol": str(rule["protocol"]).lower()} if "protocol" in rule else rule for rule in found]


@SUITE.table("loadbalancer_test.go::TestGetRulesToCreateAndDelete", rows=7)
def security_group_rules(row: Row) -> tuple[Any, Any]:
    created, deleted = security_groups.rule_changes(_rules(row["wantedRules"]), _rules(row["existingRules"]))
    expected = _rules(row["toCreate"]), sorted(rule["id"] for rule in _rules(row["toDelete"]))
    return expected, (created, sorted(deleted))


def _listener(conf: Any, protocol: str = "TCP", options: Mapping[str, Any] | None = None, service: Any = None) -> Any:
    """Return the listener of a Service's port, or ERROR. Settings of the peer's `svcConf` become annotations."""
    said = {}
    if conf.get("tlsContainerRef"):
        said[f"{PREFIX}default-tls-container-ref"] = f"https://barbican/v1/{conf['tlsContainerRef']}"
    if conf.get("keepClientIP"):
        said[f"{PREFIX}x-forwarded-for"] = "true"
    if version := conf.get("proxyProtocolVersion"):
        said[f"{PREFIX}proxy-protocol"] = {"PROXY": "v1", "PROXYV2": "v2"}[version]
    if conf.get("poolLbMethod"):
        said[f"{PREFIX}lb-method"] = conf["poolLbMethod"]
    if conf.get("connLimit"):
        said[f"{PREFIX}connection-limit"] = str(conf["connLimit"])
    affinity = service.at("Spec", "SessionAffinity", default="None") if service is not None else "None"
    want = desired(
        None, options or {}, annotations=said, ports=(Port("", protocol, 80, 30080),), session_affinity=affinity
    )
    return ERROR if want == ERROR else listener_rules.listeners(want, (), "", ALL)[0]


@SUITE.table("loadbalancer_test.go::Test_getListenerProtocol", rows=6)
def listener_protocol(row: Row) -> tuple[Any, Any]:
    arguments = row["testArg"]
    listener = _listener(arguments.get("svcConf") or {}, arguments.get("protocol") or "TCP")
    return row["expected"], listener if listener == ERROR else listener.protocol


@SUITE.table("loadbalancer_test.go::Test_buildPoolCreateOpt", rows=7)
def pool(row: Row) -> tuple[Any, Any]:
    """The row has the listener's protocol. If that is HTTP, our listener gets it from the Service's settings."""
    arguments, want = row["args"], row["want"]
    conf = dict(arguments["svcConf"])
    options = arguments["lbaasV2"]["LoadBalancer"]["opts"]
    if conf.get("proxyProtocolVersion") and conf.get("keepClientIP"):
        conf["keepClientIP"] = False  # our provider refuses the two together; with the peer, PROXY wins
    protocol = "TCP" if "HTTP" in arguments["protocol"] else arguments["protocol"]
    listener = _listener(conf, protocol, options, arguments["service"])
    expected = want["Protocol"], want["LBMethod"], want.at("Persistence", "Type")
    if listener == ERROR:
        return expected, ERROR
    persistence = listener.pool.settings["session_persistence"] or {}
    return expected, (listener.pool.protocol, listener.pool.settings["lb_algorithm"], persistence.get("type"))


@SUITE.table("loadbalancer_test.go::Test_buildMonitorCreateOpts", rows=4)
def monitor(row: Row) -> tuple[Any, Any]:
    """The peer chooses HTTP if there is a health check node port; our function also wants the traffic policy Local. The
    provider ovn has no HTTP."""
    arguments, want = row["testArg"], row["want"]
    conf, options = arguments["svcConf"], arguments["lbaas"]["LoadBalancer"]["opts"]
    said = {
        f"{PREFIX}enable-health-monitor": "true",
        f"{PREFIX}health-monitor-delay": str(conf["healthMonitorDelay"]),
        f"{PREFIX}health-monitor-timeout": str(conf["healthMonitorTimeout"]),
        f"{PREFIX}health-monitor-max-retries": str(conf["healthMonitorMaxRetries"]),
        f"{PREFIX}health-monitor-max-retries-down": str(conf["healthMonitorMaxRetriesDown"]),
    }
    port = Port("", arguments["port"]["Protocol"], 80, 30080)
    found = desired(
        None,
        options,
        annotations=said,
        ports=(port,),
        external_traffic_policy="Local",
        health_check_node_port=conf.get("healthCheckNodePort", 0),
    )
    expected = want["Type"], want["Delay"], want["Timeout"], want["MaxRetries"], want["MaxRetriesDown"]
    if found == ERROR:
        return expected, ERROR
    features = dataclasses.replace(ALL, http_monitor=options["LBProvider"] != "ovn", udp_http_monitor=False)
    made = listener_rules.listeners(found, (), "", features)[0].pool.monitor
    settings = made.settings
    return expected, (
        *(made.type, settings["delay"], settings["timeout"]),
        *(settings["max_retries"], settings["max_retries_down"]),
    )


@SUITE.table("loadbalancer_test.go::TestBuildListenerCreateOpt", rows=5, variable="testCases")
def listener(row: Row) -> tuple[Any, Any]:
    want, conf = row["expectedCreateOpt"], row["svcConf"]
    made = _listener(conf, row["port"]["Protocol"])
    expected = want["Protocol"], want["ConnLimit"], dict(want.get("InsertHeaders") or {})
    if made == ERROR:
        return expected, ERROR
    return expected, (made.protocol, made.settings["connection_limit"], made.settings["insert_headers"])


@SUITE.table("loadbalancer_test.go::Test_getProxyProtocolFromServiceAnnotation", rows=6)
def proxy_protocol(row: Row) -> tuple[Any, Any]:
    """Our result for an invalid annotation is ERROR: we report it on the Service, the peer does not."""
    said = Annotations(annotations_of(row["args"]["service"]))
    return row["want"] or "", ERROR if said.problems else said.get("proxy-protocol", "")


@SUITE.table("loadbalancer_test.go::TestLbaasV2_createLoadBalancerStatus", rows=4)
def status(row: Row) -> tuple[Any, Any]:
    arguments, want = row["args"], row["want"]
    version = arguments["svcConf"].get("proxyProtocolVersion")
    said = annotations_of(arguments["service"]) | ({f"{PREFIX}proxy-protocol": "v1"} if version else {})
    found = desired(None, row["fields"]["LoadBalancer"]["opts"], annotations=said)
    expected = want.get("HostName") or "", want.get("IPAddress") or "", want.get("IPMode")
    if found == ERROR:
        return expected, ERROR
    (ingress,) = load_balancer_rules.ingress(found, arguments["addr"])
    return expected, (ingress.hostname or "", ingress.ip or "", ingress.ip_mode)


@SUITE.table("loadbalancer_test.go::TestLbaasV2_getMemberSubnetID", rows=4)
def member_subnet(row: Row) -> tuple[Any, Any]:
    return _place(row.get("want"), row.get("wantErr"), desired(row["service"], row["opts"]), "member_subnet_id")


@SUITE.table("loadbalancer_test.go::TestLbaasV2_getNetworkID", rows=4)
def network(row: Row) -> tuple[Any, Any]:
    """The Service is compared as an internal one: the peer creates an external load balancer in its class's network,
    whatever the tested function returns."""
    options = row["lbaas"].at("LoadBalancer", "opts", default={})
    return _place(row.get("want"), row.get("wantErr"), _internal(row["arg"]["service"], options), "network_id")


@SUITE.table("loadbalancer_test.go::Test_getSubnetID", rows=4)
def subnet(row: Row) -> tuple[Any, Any]:
    arguments = row["args"]
    options = arguments["lbaasV2"].at("LoadBalancer", "opts", default={})
    return _place(row.get("want"), row.get("wantErr"), _internal(arguments["service"], options), "subnet_id")


def _internal(service: Row, options: Mapping[str, Any]) -> Any:
    said = annotations_of(service) | {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
    return desired(None, options, annotations=said)


def _place(expected: str | None, error: str | None, result: Any, attribute: str) -> tuple[Any, Any]:
    return ERROR if error else identity(expected or ""), result if result == ERROR else getattr(result, attribute)


@SUITE.table("loadbalancer_test.go::Test_nodeAddressForLB", rows=15)
def node_address(row: Row) -> tuple[Any, Any]:
    """Without a family, the peer takes any address; a Service always has a family."""
    arguments = row["testArgs"]
    return row["expect"], backend_addresses.node_address(
        backend(arguments["node"]), arguments.get("preferredIPFamily", "")
    )


@SUITE.table("loadbalancer_test.go::TestFilterNodes", rows=6)
def node_selector(row: Row) -> tuple[Any, Any]:
    said = annotations_of(row["service"]).get(row["annotationKey"])
    default = row["defaultSetting"]
    chosen = (
        outcome(lambda: selector(said)) if said is not None else {key: value or None for key, value in default.items()}
    )
    if chosen == ERROR:
        return row["nodeFiltered"], ERROR
    node = Backend("n", "", (Address(AddressType("InternalIP"), "10.0.0.1"),), labels=dict(row["nodeLabels"]))
    return row["nodeFiltered"], bool(backend_addresses.members_of([node], "IPv4", chosen))


@SUITE.table("loadbalancer_test.go::TestBuildBatchUpdateMemberOpts", rows=5, variable="testCases")
def members(row: Row) -> tuple[Any, Any]:
    conf = row["svcConf"]
    said = {f"{PREFIX}enable-health-monitor": str(conf.get("enableMonitor", False)).lower()}
    port = Port("", row["port"].get("Protocol") or "TCP", 80, row["port"]["NodePort"])
    want = desired(
        None,
        {},
        annotations=said,
        ports=(port,),
        ip_families=(conf["preferredIPFamily"],),
        external_traffic_policy="Local" if conf.get("healthCheckNodePort") else "Cluster",
        health_check_node_port=conf.get("healthCheckNodePort", 0),
    )
    made = listener_rules.listeners(want, [backend(node) for node in row["nodes"]], "", ALL)[0].pool.members
    return row["expectedLen"], len(made)


def _node_addresses(row: Row) -> tuple[Any, Any]:
    server, options = row["srv"], row["networkingOpts"]
    networking = Networking(
        ipv6_support_disabled=options.get("IPv6SupportDisabled", False),
        public_network_name=tuple(options.get("PublicNetworkName") or ()),
        internal_network_name=tuple(options.get("InternalNetworkName") or ()),
        address_sort_order=networks(options.get("AddressSortOrder") or ""),
    )
    ports = [
        {
            "id": str(index),
            "status": port["Port"]["Status"],
            "fixed_ips": [{"ip_address": fixed["IPAddress"]} for fixed in port["Port"]["FixedIPs"]],
        }
        for index, port in enumerate(row["ports"])
    ]
    nova = {
        "accessIPv4": server.get("AccessIPv4"),
        "accessIPv6": server.get("AccessIPv6"),
        "metadata": dict(server.get("Metadata") or {}),
        "addresses": {name: [dict(entry) for entry in server["Addresses"][name]] for name in server["Addresses"]},
    }
    ours = instance_rules.addresses(nova, ports, {}, networking)
    return [(address["Type"], address["Address"]) for address in row["want"]], [text_of(address) for address in ours]


for _test in (
    *("", "CustomPublicNetwork", "CustomPublicNetworkWithIntersectingFixedIP", "IPv6Disabled"),
    *("MultipleCustomInternalNetworks", "OneInternalNetwork", "WithAddressSortOrderOptions"),
):
    SUITE.whole(f"openstack_test.go::TestNodeAddresses{_test}")(_node_addresses)


@SUITE.table("instances_addresses_test.go::TestGetSortPriority", rows=6)
def sort_priority(row: Row) -> tuple[Any, Any]:
    """The peer's priorities are in reverse order, for the two networks that its test declares above the table."""
    order = tuple(map(ipaddress.ip_network, ("192.168.100.0/24", "2001:4800:790e::/64")))
    try:
        address = Address(AddressType.INTERNAL_IP, str(ipaddress.ip_address(row["key"])))
    except ValueError:
        address = Address(AddressType.HOSTNAME, row["key"])
    rank = instance_rules._rank(address, Networking(address_sort_order=order))[0]
    return row["value"], len(order) - rank
