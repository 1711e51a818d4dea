# SPDX-License-Identifier: Apache-2.0
"""Hostile Services and Nodes in wire form: small random ones, and the largest of each kind.

Some are worse than the API server admits, because its validation differs between versions.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

#: The API server's limits in bytes: for all annotations of one object together, and for one object.
ANNOTATIONS, OBJECT = 256 * 1024, 1536 * 1024

SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"
TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"

#: Texts that break parsers, patterns, logs and terminals.
NASTY = [
    *(
        "",
        " ",
        ",",
        ",,,,",
        "null",
        "None",
        "-1",
        "0",
        "1e999",
        "NaN",
        "0x10",
        "²",
        "٣",
        "\uff11\uff10.0.0.1",
        "..",
        "/",
        "~",
    ),
    *("*", "~(a+)+$", "~(((.*)*)*)*X", "(", "[", "\\", "%s%n", "{0}", "${x}", "$(id)", "';--", "<a>", "../../etc"),
    *("a\nb", "\r\n2026-01-01T00:00:00Z INFO forged", "a\x00b", "\x1b[2J\x1b]0;x\x07", "\u202etxt", "\u2028", "\ufeff"),
    *("\ud7ff", "\U0010ffff", "é" * 300, "9" * 400, "9" * 5000, "a" * 5000, "." * 5000, "10." * 1000, ":" * 1000),
    *("[::1", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/٣", "10.0.0.0/255.0.0.0", "10.0.0.1/8", "0.0.0.0/0", "::/0"),
    *(
        "::ffff:10.0.0.1",
        "fe80::1%eth0",
        "fe80::%1/64",
        "010.0.0.1",
        "10.0.0.1 ",
        "1.2.3.4/" + "9" * 5000,
        "2001:DB8::1",
    ),
    *(
        "fake://",
        "fake://healthy",
        "FAKE://healthy",
        "fake://a\nb",
        "sim://north/i-000000000001",
        "sim://north/" + "i" * 999,
    ),
    *("169.254.169.254", "127.0.0.1", "8.8.8.0/24", "10.120.9.0/24", "10.120.0.0/16", "10.0.0.0/8", "10.120.0.7/32"),
    *("healthy", "shop/healthy", "kubernetes", "uid-of-healthy"),
]
TEXT = st.sampled_from(NASTY) | st.text(max_size=20)
TEXTS = st.lists(TEXT, max_size=6)
MAP = st.dictionaries(TEXT, TEXT, max_size=4)
NUMBER = st.sampled_from([0, 1, 80, 65535, 65536, -1, 2**31, 2**63, 2**70]) | st.integers(0, 70000)
TIME = st.none() | st.sampled_from(
    [
        *("", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-01-01"),
        *("2026-01-01T00:00:00", "2026-01-01T00:00:00+23:59", "2026-W01-1", "24:00", "\u0662026-01-01T00:00:00Z", "x"),
    ]
)


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for dictionaries with any of these fields, all optional."""
    return st.fixed_dictionaries({}, optional=fields)


PORT = maybe(
    name=TEXT,
    protocol=st.sampled_from(["TCP", "UDP", "SCTP", ""]) | TEXT,
    port=NUMBER,
    nodePort=NUMBER,
    targetPort=NUMBER | TEXT,
    appProtocol=st.none() | TEXT,
)
INGRESS = maybe(
    ip=TEXT, hostname=TEXT, ipMode=st.none() | TEXT, ports=st.lists(maybe(port=NUMBER, error=TEXT), max_size=2)
)
#: Metadata, spec and status of Services. The test adds names and UIDs.
SERVICE = st.fixed_dictionaries(
    {
        "metadata": maybe(
            labels=MAP,
            annotations=MAP | st.fixed_dictionaries({SOURCE_RANGES: TEXTS.map(",".join)}),
            finalizers=TEXTS | st.just([FINALIZER]) | st.just([FINALIZER, FINALIZER]),
            ownerReferences=st.lists(maybe(kind=TEXT, name=TEXT, uid=TEXT), max_size=2),
            creationTimestamp=TIME,
            deletionTimestamp=TIME,
        ),
        "spec": maybe(
            type=st.just("LoadBalancer") | st.sampled_from(["ClusterIP", "NodePort", "ExternalName", ""]) | TEXT,
            ports=st.lists(PORT, max_size=4),
            loadBalancerClass=st.none() | TEXT,
            loadBalancerIP=TEXT,
            loadBalancerSourceRanges=TEXTS,
            externalIPs=TEXTS,
            sessionAffinity=TEXT,
            sessionAffinityConfig=st.none()
            | maybe(clientIP=st.none() | maybe(timeoutSeconds=st.none() | NUMBER), x=st.none()),
            externalTrafficPolicy=st.sampled_from(["Local", "Cluster", ""]) | TEXT,
            healthCheckNodePort=NUMBER,
            ipFamilies=st.lists(st.sampled_from(["IPv4", "IPv6"]) | TEXT, max_size=3),
            ipFamilyPolicy=TEXT,
            allocateLoadBalancerNodePorts=st.none() | st.booleans(),
            clusterIP=TEXT,
        ),
        "status": maybe(loadBalancer=maybe(ingress=st.lists(INGRESS, max_size=3))),
    }
)
ADDRESS = st.fixed_dictionaries(
    {"type": st.sampled_from(["InternalIP", "ExternalIP", "Hostname", "InternalDNS"]) | TEXT, "address": TEXT}
)
CONDITION = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["Ready", "NetworkUnavailable"]) | TEXT,
        "status": st.sampled_from(["True", "False"]) | TEXT,
    },
    optional={"reason": TEXT, "message": TEXT, "lastHeartbeatTime": TIME, "lastTransitionTime": TIME},
)
TAINTS = st.lists(
    st.fixed_dictionaries({"key": st.just(TAINT) | TEXT}, optional={"value": TEXT, "effect": TEXT, "timeAdded": TIME}),
    max_size=3,
)
#: Metadata, spec and status of Nodes. The test adds names and UIDs.
NODE = st.fixed_dictionaries(
    {
        "metadata": maybe(
            labels=MAP | st.just({"node.kubernetes.io/exclude-from-external-load-balancers": ""}),
            annotations=MAP | st.fixed_dictionaries({PROVIDED_NODE_IP: TEXT | TEXTS.map(",".join)}),
            finalizers=TEXTS,
            creationTimestamp=TIME,
            deletionTimestamp=TIME,
        ),
        "spec": maybe(
            providerID=st.sampled_from(["fake://healthy", "fake://hostile", ""]) | TEXT,
            podCIDR=TEXT,
            podCIDRs=TEXTS | st.just(["10.120.1.0/24", "10.120.1.0/24"]),
            taints=TAINTS,
            unschedulable=st.booleans(),
        ),
        "status": maybe(
            addresses=st.lists(ADDRESS, max_size=4),
            conditions=st.lists(CONDITION, max_size=3),
            nodeInfo=maybe(kubeletVersion=TEXT, machineID=TEXT),
        ),
    }
)


def distinct_ranges(count: int) -> list[str]:
    return [f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}.0/24" for number in range(count)]


def load_balancer(**spec: Any) -> dict[str, Any]:
    """Return a Service of type LoadBalancer. Annotations, finalizers and labels go to metadata, the rest to spec."""
    meta = {name: spec.pop(name) for name in ("annotations", "finalizers", "labels") if name in spec}
    ports = [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}]
    return {"metadata": meta, "spec": {"type": "LoadBalancer", "ports": ports, **spec}, "status": {}}


#: The largest Services that the API server accepts. Each is large in another field.
LARGEST_SERVICES: dict[str, dict[str, Any]] = {
    "distinct-ranges": load_balancer(loadBalancerSourceRanges=distinct_ranges(90_000)),
    "same-range": load_balancer(loadBalancerSourceRanges=["10.0.0.0/8"] * 100_000),
    "range-of-digits": load_balancer(loadBalancerSourceRanges=["10.0.0.0/" + "9" * 1_400_000]),
    "ranges-in-annotation": load_balancer(annotations={SOURCE_RANGES: ",".join(distinct_ranges(18_000))}),
    "commas-in-annotation": load_balancer(annotations={SOURCE_RANGES: "," * ANNOTATIONS}),
    "ports": load_balancer(
        ports=[{"name": f"p{n}", "protocol": "TCP", "port": n + 1, "targetPort": n + 1} for n in range(20_000)]
    ),
    "address": load_balancer(loadBalancerIP="1" * 1_400_000),
    "address-with-lines": load_balancer(loadBalancerIP="\n" * 700_000),
    "class": load_balancer(loadBalancerClass="a" * 1_400_000),
    "external-ips": load_balancer(externalIPs=[f"192.0.{n // 256 % 256}.{n % 256}" for n in range(90_000)]),
    "annotations": load_balancer(annotations={f"a/{n}": "v" for n in range(30_000)}),
    "one-annotation": load_balancer(annotations={"lb": "(" * ANNOTATIONS}),
    "finalizers": load_balancer(finalizers=[f"example.com/{n}" for n in range(60_000)]),
    "labels": load_balancer(labels={f"l{n}": "" for n in range(90_000)}),
    "port-names": load_balancer(ports=[{"name": "a" * 1_400_000, "port": 80, "nodePort": 30080}]),
    "affinity": load_balancer(sessionAffinity="ClientIP" * 150_000),
}


def node(**fields: Any) -> dict[str, Any]:
    """Return a Node. Labels and annotations go to metadata, addresses and conditions to status, the rest to spec."""
    meta = {name: fields.pop(name) for name in ("labels", "annotations") if name in fields}
    status = {name: fields.pop(name) for name in ("addresses", "conditions") if name in fields}
    return {"metadata": meta, "spec": {"providerID": "fake://hostile", **fields}, "status": status}


def addresses(kind: str, count: int) -> list[dict[str, str]]:
    return [{"type": kind, "address": f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"} for n in range(count)]


#: Not 90,000: the API server also records each label in `managedFields`, which counts towards the object's size.
_LABELS = {f"l{n}": "" for n in range(45_000)}
_TAINTED = [{"key": TAINT, "effect": "NoSchedule"}]
_IP = {"type": "InternalIP", "address": "10.9.9.9"}
LARGEST_NODES: dict[str, dict[str, Any]] = {
    "internal-ips": node(addresses=addresses("InternalIP", 30_000), podCIDRs=["10.120.7.0/24"]),
    "hostnames": node(addresses=addresses("Hostname", 30_000), taints=_TAINTED),
    "hostnames-and-node-ip": node(
        addresses=addresses("Hostname", 30_000), taints=_TAINTED, annotations={PROVIDED_NODE_IP: "10.9.9.9,fd00::9"}
    ),
    "node-ips": node(taints=_TAINTED, annotations={PROVIDED_NODE_IP: ",".join(["10.9.9.9"] * 29_000)}),
    "node-ip-of-digits": node(taints=_TAINTED, annotations={PROVIDED_NODE_IP: "9" * ANNOTATIONS}),
    "node-ip-of-numbers": node(taints=_TAINTED, annotations={PROVIDED_NODE_IP: "1." * (ANNOTATIONS // 2)}),
    "provider-id": node(providerID="fake://" + "x" * 1_400_000, taints=_TAINTED),
    "foreign-provider-id": node(providerID="\n" * 1_400_000, taints=_TAINTED),
    "taints": node(taints=[{"key": f"t{n}", "effect": "NoSchedule"} for n in range(30_000)] + _TAINTED),
    "labels": node(labels=_LABELS, taints=_TAINTED, addresses=[_IP]),
    "conditions": node(conditions=[{"type": f"c{n}", "status": "True"} for n in range(30_000)], addresses=[_IP]),
    "ready-many-times": node(conditions=[{"type": "Ready", "status": "False"}] * 30_000, addresses=[_IP]),
    "pod-cidrs": node(podCIDRs=[f"10.120.{n % 256}.{n // 256 % 256}/32" for n in range(60_000)], addresses=[_IP]),
    "pod-cidr-of-digits": node(podCIDRs=["10.120.1.0/" + "9" * 1_400_000], addresses=[_IP]),
}
