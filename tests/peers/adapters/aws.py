# SPDX-License-Identifier: Apache-2.0
"""Tables of cloud-provider-aws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    ConfigError,
    Ingress,
    Invalid,
    LoadBalancerSpec,
    Port,
    ProviderConfig,
)
from ccm.cloud.errors import CloudError
from ccm.providers.aws import api, instance_rules
from ccm.providers.aws.annotations import PREFIX, SUBNET, list_of, tags
from ccm.providers.aws.load_balancers.classic import load_balancer_rules as classic_rules
from ccm.providers.aws.load_balancers.network import load_balancer_rules as network_rules
from ccm.providers.aws.load_balancers.shared import subnet_rules, target_rules, type_rules
from ccm.providers.aws.settings import Settings
from ccm.providers.aws.settings_sections import Global

from ..suite import ERROR, Row, Suite, outcome

SUITE = Suite("aws", "pkg/providers/v1")
CLUSTER = "clusterid.test"
_TCP = Port("", "TCP", 80, 8080)


def spec(annotations: Mapping[str, str] | None = None, **more: Any) -> LoadBalancerSpec:
    base = {"cluster": CLUSTER, "uid": "u", "namespace": "default", "name": "service-a", "ports": (_TCP,)}
    return LoadBalancerSpec(**(base | {"annotations": dict(annotations or {})} | more))


def _ports(rows: Any) -> tuple[Port, ...]:
    return tuple(
        Port(row.get("Name", ""), row.get("Protocol", "TCP"), row["Port"], row.get("NodePort", 30080)) for row in rows
    )


def wanted(service: LoadBalancerSpec, common: Global | None = None) -> Any:
    """Return the desired load balancer of the type that the Service requests; ERROR if we refuse the Service, for
    example because it requests another type than it has."""

    def make() -> Any:
        kind = type_rules.type_of(service, type_rules.CLASSIC)
        if type_rules.had(service) not in ("", kind):
            raise Invalid(type_rules.never_changes("lb", type_rules.had(service), kind))
        rules = network_rules if kind == type_rules.NETWORK else classic_rules
        return rules.desired_state(service, common or Global(), CLUSTER)

    return outcome(make, CloudError)


@SUITE.table("instances_test.go::TestMapToAWSInstanceIDs", rows=13)
def instance_id(row: Row) -> tuple[Any, Any]:
    return row.get("Aws"), instance_rules.instance_id(row["Kubernetes"])


@SUITE.table("aws_loadbalancer_test.go::TestBuildTargetGroupName", rows=9)
def group_name(row: Row) -> tuple[Any, Any]:
    """Our provider has only instances as targets; rows with IP targets are not comparable."""
    arguments = row["args"]
    service = spec(namespace=arguments["serviceName"]["Namespace"], name=arguments["serviceName"]["Name"])
    port = Port("", "TCP", arguments["servicePort"], arguments["nodePort"])
    conf = arguments.at("nlbConfig", "HealthCheckConfig", default={})
    check = network_rules.Check(conf.get("Protocol", ""), interval=conf.get("Interval", 0))
    if arguments["targetType"] != "instance":
        return row["want"], "a group of instances"
    return row["want"], network_rules.group_name(row["clusterID"], service, port, arguments["targetProtocol"], check)


@SUITE.table("aws_loadbalancer_test.go::TestIsNLB", rows=3)
def is_network(row: Row) -> tuple[Any, Any]:
    service = spec(row.get("annotations"))
    return row["want"], type_rules.type_of(service, type_rules.CLASSIC) == type_rules.NETWORK


@SUITE.table("aws_loadbalancer_test.go::TestIsLBExternal", rows=4)
def is_external(row: Row) -> tuple[Any, Any]:
    found = outcome(lambda: type_rules.type_of(spec(row["annotations"]), type_rules.CLASSIC), CloudError)
    return row["want"], found == ERROR


@SUITE.table("aws_test.go::TestCheckMixedProtocol", rows=3)
def mixed_protocols(row: Row) -> tuple[Any, Any]:
    found = wanted(spec(row["annotations"], ports=_ports(row["ports"])))
    return bool(row.get("wantErr")), found == ERROR


@SUITE.table("aws_test.go::TestCheckProtocol", rows=4)
def protocol(row: Row) -> tuple[Any, Any]:
    found = wanted(spec(row["annotations"], ports=_ports([row["port"]])))
    return bool(row.get("wantErr")), found == ERROR


@SUITE.table("aws_test.go::TestBuildListener", rows=14)
def listener(row: Row) -> tuple[Any, Any]:
    names = {"backendProtocolAnnotation": "backend-protocol", "certAnnotation": "ssl-cert"}
    said = {PREFIX + name: row[field] for field, name in names.items() if row[field]}
    if row["sslPortAnnotation"]:
        said[f"{PREFIX}ssl-ports"] = row["sslPortAnnotation"]
    if f"{PREFIX}ssl-cert" in said:
        said[f"{PREFIX}ssl-cert"] = f"arn:aws:acm:us-east-1:123456789012:certificate/{row['certAnnotation']}"
    found = wanted(spec(said, ports=(Port(row["portName"], "TCP", row["lbPort"], row["instancePort"]),)))
    if row["expectError"]:
        return ERROR, found
    expected = row["lbPort"], row["lbProtocol"], row["instancePort"], row["instanceProtocol"], row["certID"]
    if found == ERROR:
        return expected, ERROR
    (made,) = found.listeners
    certificate = made.certificate.rpartition("/")[2]
    return expected, (*(made.port, made.protocol.lower(), made.node_port, made.node_protocol.lower(), certificate),)


@SUITE.table("aws_test.go::TestGetKeyValuePropertiesFromAnnotation", rows=5, variable="tagTests")
def additional_tags(row: Row) -> tuple[Any, Any]:
    text = row["Annotations"].get(f"{PREFIX}additional-resource-tags")
    return row["Tags"].plain(), {} if text is None else outcome(lambda: tags(text))


@SUITE.table("aws_test.go::Test_parseStringSliceAnnotation", rows=4)
def names(row: Row) -> tuple[Any, Any]:
    text = (row.get("annotations") or {}).get(row["annotation"])
    if text is None:
        return row["wantExist"], False
    return row["want"], outcome(lambda: list(list_of(SUBNET, "names")(text)))


@SUITE.table("aws_test.go::TestEnsureLoadBalancerHealthCheck", rows=10)
def classic_check(row: Row) -> tuple[Any, Any]:
    """The test's Service forwards to the node port 8080 by TCP."""
    want, found = row["want"], wanted(spec(row["annotations"]))
    fields = ("Target", "Interval", "Timeout", "HealthyThreshold", "UnhealthyThreshold")
    expected = tuple(want[field] for field in fields)
    if found == ERROR:
        return expected, ERROR
    check = found.check
    return expected, (check.target, check.interval, check.timeout, check.healthy, check.unhealthy)


#: What `modifyConfig` sets in each of the peer's cases, by name. Copied by hand: the reader of Go tables
#: cannot evaluate functions.
_SHARED = {
    "default cluster with shared health check": {},
    "default cluster with shared health check and custom port": {"port": 8080},
    "default cluster with shared health check and custom path": {"path": "/custom-healthz"},
}


@SUITE.table("aws_test.go::TestCloud_buildNLBHealthCheckConfiguration", rows=11)
def network_check(row: Row) -> tuple[Any, Any]:
    want, service = row["want"], row["service"]
    shared = _SHARED.get(row["name"])
    common = Global()
    if shared is not None:
        common = Global(
            clusterserviceloadbalancerhealthprobemode="Shared",
            **{f"clusterservicesharedloadbalancerhealthprobe{name}": value for name, value in shared.items()},
        )
    said = {f"{PREFIX}type": "nlb"} | dict(service.at("ObjectMeta", "Annotations", default={}))
    found = wanted(
        spec(
            said,
            ports=_ports([Row({"Port": 8080, "NodePort": 32205})]),
            external_traffic_policy=service.at("Spec", "ExternalTrafficPolicy", default="Cluster"),
            health_check_node_port=service.at("Spec", "HealthCheckNodePort", default=0),
        ),
        common,
    )
    if row.get("wantError"):
        return ERROR, found
    fields = ("Protocol", "Port", "Interval", "HealthyThreshold", "UnhealthyThreshold")
    expected = (want.get("Path", ""), *(want[field] for field in fields))
    if found == ERROR:
        return expected, ERROR
    check = found.listeners[0].check
    return expected, (check.path, check.protocol, check.port, check.interval, check.healthy, check.unhealthy)


@SUITE.table("tags_test.go::TestHasClusterTag", rows=7, variable="grid")
def cluster_tag(row: Row) -> tuple[Any, Any]:
    return row.get("Expected", False), api.is_of_cluster(row["Tags"].plain(), CLUSTER)


@SUITE.table("aws_loadbalancer_test.go::TestFilterTargetNodes", rows=5)
def target_nodes(row: Row) -> tuple[Any, Any]:
    found = wanted(spec({f"{PREFIX}type": "nlb"} | dict(row.get("annotations") or {})))
    address = Address(AddressType.INTERNAL_IP, "10.0.0.1")
    node = Backend("n", "aws:///us-east-1a/i-12345678", (address,), labels=dict(row["nodeLabels"]))
    return row["nodeTargeted"], bool(target_rules.ids(found, [node]))


@SUITE.table("aws_validations_test.go::TestValidateServiceAnnotations", rows=24)
def validations(row: Row) -> tuple[Any, Any]:
    ingress = tuple(Ingress(hostname=entry["Hostname"]) for entry in row.get("ingressStatus") or ())
    more = {"ports": _ports(row["servicePorts"])} if "servicePorts" in row else {}
    found = wanted(spec(row["annotations"], ingress=ingress, **more))
    return bool(row["expectedError"]), found == ERROR


@SUITE.table("aws_validations_test.go::TestValidateServiceAnnotationTargetGroupAttributes", rows=20)
def group_attributes(row: Row) -> tuple[Any, Any]:
    found = wanted(spec({f"{PREFIX}type": "nlb"} | dict(row["annotations"]), ports=_ports(row["servicePorts"])))
    return bool(row["expectedError"]), found == ERROR


def _addresses(row: Row) -> tuple[Any, Any]:
    """The instance is that of the peer's makeInstance: at most one interface, in use. We compare only the number of
    addresses."""
    interface = {
        "Status": "in-use",
        "PrivateIpAddresses": [{"PrivateIpAddress": row["PrivateIP"]}],
        "Ipv6Addresses": [{"Ipv6Address": text} for text in (row.get("Ipv6s") or [])[:1]],
    }
    instance = {
        "PrivateDnsName": row["PrivateDNSName"],
        "PublicDnsName": row.get("PublicDNSName"),
        "PublicIpAddress": row.get("PublicIP"),
        "NetworkInterfaces": [interface] if row.get("SetNetInterface") else [],
    }
    families = ("ipv6",) if row.get("Ipv6Only") else ("ipv4",)
    return row["ExpectedNumAddresses"], len(list(instance_rules.addresses(instance, families)))


SUITE.table("aws_test.go::TestNodeAddresses", rows=5, variable="range")(_addresses)
SUITE.table("aws_test.go::TestNodeAddressesByProviderID", rows=4, variable="range")(_addresses)


@SUITE.table("aws_test.go::TestReadAWSCloudConfigNodeIPFamilies", rows=2)
def families(row: Row) -> tuple[Any, Any]:
    _, (text,) = row.call("reader") or ("", [""])
    settings = outcome(lambda: Settings.parse(ProviderConfig(text=text, source="aws.conf")), ConfigError)
    return row["nodeIPFamilies"], settings if settings == ERROR else list(settings.families)


@SUITE.table("aws_test.go::Test_findELBSubnets", rows=11)
def subnets(row: Row) -> tuple[Any, Any]:
    """Our function knows local and wavelength zones by their type; the test's cloud derives the type from the name."""
    rows = [
        {
            "SubnetId": subnet["SubnetId"],
            "AvailabilityZone": subnet["AvailabilityZone"],
            "Tags": [{"Key": _key(tag), "Value": tag["Value"]} for tag in subnet.get("Tags") or ()],
        }
        for subnet in row.get("subnets") or ()
    ]
    public = row.get("routeTables") or {entry["SubnetId"]: True for entry in rows}
    tables = [
        {"Associations": [{"SubnetId": id}], "Routes": [{"GatewayId": "igw-1" if public[id] else "nat-1"}]}
        for id in public
    ]
    kinds = {"az-local": "local-zone", "az-wavelength": "wavelength-zone"}
    chosen = outcome(
        lambda: subnet_rules.chosen(
            rows, tables, cluster=CLUSTER, internal=row.get("internal", False), zone_types=kinds, fallback=""
        ),
        Invalid,
    )
    return sorted(row.get("want") or ()), [] if chosen == ERROR else sorted(chosen)


def _key(tag: Row) -> str:
    call = tag.call("Key")
    return f"kubernetes.io/cluster/{CLUSTER}" if call and call[0].endswith("clusterTagKey") else tag["Key"]
