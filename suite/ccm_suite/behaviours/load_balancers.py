# SPDX-License-Identifier: Apache-2.0
"""Behaviours of Services of type LoadBalancer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from kubernetes.client import ApiException

from ..behaviour import Disturbance, Level, Steps, behaviour
from ..errors import Unsupported
from ..kube import NODES, Object
from ..trial import NO_BACKEND, Trial

DOCS = "https://kubernetes.io/docs/concepts/services-networking/service/#loadbalancer"
FINALIZERS = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/980-load-balancer-finalizers"
CLASSES = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/1959-service-lb-class-field"
NODES_OF = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3458-remove-transient-node-predicates-from-service-controller"
LOCAL = "https://kubernetes.io/docs/tasks/access-application-cluster/create-external-load-balancer/#preserving-the-client-source-ip"
EXCLUDED = "https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-exclude-from-external-load-balancers"
DUAL = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/563-dual-stack"
CONCURRENCY = "https://github.com/kubernetes-sigs/cloud-provider-azure/issues/5909"
SHARING = "https://github.com/kubernetes/cloud-provider-openstack/pull/1648"
#: Upstream's timers: the interval at which members follow the Nodes, and the longest back-off of a Service.
NODE_SYNC, BACK_OFF = 100, 300
#: The number of failing Services of a noisy tenant, and the seconds within which another tenant's Service is served.
LOUD, SOON = 20, 30
#: How many times the other tenant does something, and the seconds between, while the failing Services are tried again.
TRIES, PAUSE = 5, 5
MUST, SHOULD, SPEED = Level.MUST, Level.SHOULD, Level.SPEED


def _ports(service: Object) -> frozenset[tuple[str, int, int]]:
    return frozenset((port["protocol"], port["port"], port.get("nodePort", 0)) for port in service["spec"]["ports"])


def _fits(trial: Trial, address: str, name: str = "web") -> bool:
    """Return whether the load balancer at this address has exactly the Service's ports."""
    balancer = trial.balancer(address)
    return balancer is not None and balancer.ports == _ports(trial.read_service(name))


@behaviour("balancer.address", MUST, "A Service of type LoadBalancer gets the address of a load balancer.", DOCS)
def has_address(trial: Trial) -> None:
    trial.service()
    address = trial.served()
    trial.equal("the cloud has a load balancer with it", trial.balancer(address) is not None, True)


@behaviour("balancer.finalizer", MUST, "A Service that has an address has the finalizer.", FINALIZERS)
def finalizer(trial: Trial) -> None:
    trial.service()
    trial.served()
    trial.equal("the finalizer is there", trial.has_finalizer(), True)


@behaviour("balancer.ports", MUST, "The load balancer has the Service's ports and node ports.", DOCS)
def ports(trial: Trial) -> None:
    trial.service(ports=[{"name": "a", "port": 80}, {"name": "b", "port": 8443}])
    address = trial.served()
    trial.until("the ports are right", lambda: _fits(trial, address), 30)


@behaviour("balancer.udp", MUST, "A UDP port becomes a UDP port of the load balancer.", DOCS)
def udp(trial: Trial) -> None:
    trial.service(ports=[{"name": "dns", "port": 53, "protocol": "UDP"}])
    address = trial.served()
    trial.until("the port is right", lambda: _fits(trial, address), 30)


@behaviour("balancer.port-added", MUST, "A port that is added to the Service is added to the load balancer.", DOCS)
def port_added(trial: Trial) -> None:
    trial.service()
    address = trial.served()
    trial.add_port(81)
    trial.until("the ports follow", lambda: len(_ports(trial.read_service())) == 2 and _fits(trial, address), 60)


@behaviour(
    "balancer.port-removed", MUST, "A port that is removed from the Service is removed from the load balancer.", DOCS
)
def port_removed(trial: Trial) -> None:
    trial.service(ports=[{"name": "a", "port": 80}, {"name": "b", "port": 81}])
    address = trial.served()
    trial.change(ports=trial.read_service()["spec"]["ports"][:1])
    trial.until("the ports follow", lambda: _fits(trial, address), 60)


@behaviour("balancer.address-kept", MUST, "A change of ports keeps the address.", DOCS)
def address_kept(trial: Trial) -> None:
    trial.service()
    address = trial.served()
    trial.change_port(8080)
    trial.until("the port follows", lambda: _fits(trial, address), 60)
    trial.equal("the address in the status", trial.addresses(), [address])


@behaviour("balancer.source-ranges", MUST, "The load balancer admits only the Service's source ranges.", DOCS)
def source_ranges(trial: Trial) -> None:
    trial.service(loadBalancerSourceRanges=["192.0.2.0/24"])
    address = trial.served()

    def is_restricted() -> bool:
        balancer = trial.balancer(address)
        return balancer is not None and balancer.source_ranges == {"192.0.2.0/24"}

    trial.until("the source ranges are right", is_restricted, 30)


@behaviour("balancer.members", MUST, "All ready Nodes are members of a load balancer.", NODES_OF)
def members(trial: Trial) -> None:
    machines = [trial.member(is_backend=True) for _ in range(2)]
    trial.service()
    address = trial.served()
    trial.until("both are members", lambda: all(trial.has_member(address, machine) for machine in machines), 60)


@behaviour("balancer.node-joins", MUST, "A Node that joins becomes a member of load balancers that exist.", NODES_OF)
def node_joins(trial: Trial) -> None:
    trial.service()
    address = trial.served()
    machine = trial.member(is_backend=True)
    trial.figures["seconds"] = round(
        trial.until("it is a member", lambda: trial.has_member(address, machine), 50, NODE_SYNC), 1
    )


@behaviour("balancer.node-leaves", MUST, "A Node that is deleted is no longer a member.", NODES_OF)
def node_leaves(trial: Trial) -> None:
    machine = trial.member(is_backend=True)
    trial.service()
    address = trial.served()
    trial.until("it is a member", lambda: trial.has_member(address, machine), 60)
    trial.kube.delete(f"{NODES}/{machine.name}")  # not the machine: AWS refuses other members beside a deleted one
    trial.until("it is no member", lambda: not trial.has_member(address, machine), 50, NODE_SYNC)


@behaviour("balancer.excluded", MUST, "A Node that is labelled as excluded is no longer a member.", EXCLUDED)
def excluded(trial: Trial) -> None:
    machine = trial.member(is_backend=True)
    trial.service()
    address = trial.served()
    trial.until("it is a member", lambda: trial.has_member(address, machine), 60)
    label = {"metadata": {"labels": {NO_BACKEND: "true"}}}
    trial.kube.patch(f"{NODES}/{machine.name}", label)
    trial.until("it is no member", lambda: not trial.has_member(address, machine), 50, NODE_SYNC)


@behaviour("balancer.uninitialised", MUST, "A Node that is not initialised yet is no member.", NODES_OF)
def uninitialised(trial: Trial) -> None:
    machine = trial.machine()
    trial.cloud.delete_machine(machine)  # so that the Node stays uninitialised
    trial.join(machine, is_backend=True)
    trial.service()
    address = trial.served()
    trial.always("it is no member", lambda: not trial.has_member(address, machine), 15)


@behaviour(
    "balancer.silent-node", SHOULD, "A silent Node stays a member: the load balancer's health check decides.", NODES_OF
)
def silent_node(trial: Trial) -> None:
    machine = trial.member(is_backend=True)
    trial.service()
    address = trial.served()
    trial.until("it is a member", lambda: trial.has_member(address, machine), 60)
    trial.set_ready(machine.name, ready=False)
    trial.always("it stays a member", lambda: trial.has_member(address, machine), 30)


@behaviour(
    "balancer.local",
    MUST,
    "With externalTrafficPolicy Local, the health check uses the Service's healthCheckNodePort.",
    LOCAL,
)
def local(trial: Trial) -> None:
    trial.service(externalTrafficPolicy="Local")
    address = trial.served()
    wanted = trial.read_service()["spec"]["healthCheckNodePort"]

    def is_checked() -> bool:
        balancer = trial.balancer(address)
        return balancer is not None and balancer.health_check_port == wanted

    trial.until("the health check is right", is_checked, 30)


@behaviour("balancer.deleted", MUST, "A Service that is deleted loses its load balancer, and is gone.", FINALIZERS)
def deleted(trial: Trial) -> None:
    trial.service()
    address = trial.served()
    trial.kube.delete(f"{trial.services}/web")
    trial.released(90)
    trial.equal("the load balancer is gone", trial.balancer(address) is None, True)


@behaviour(
    "balancer.cluster-ip",
    MUST,
    "A Service that becomes ClusterIP loses its load balancer, address and finalizer.",
    FINALIZERS,
)
def cluster_ip(trial: Trial) -> None:
    trial.service()
    address = trial.served()
    trial.change(type="ClusterIP")
    trial.until("the load balancer is gone", lambda: trial.balancer(address) is None, 90)
    trial.until("the status is empty", lambda: not trial.addresses(), 60)
    trial.until("the finalizer is gone", lambda: not trial.has_finalizer(), 60)


@behaviour("balancer.back-again", MUST, "A Service that becomes LoadBalancer again is served again.", DOCS)
def back_again(trial: Trial) -> None:
    trial.service()
    address = trial.served()
    trial.change(type="ClusterIP")
    trial.until("the load balancer is gone", lambda: trial.balancer(address) is None, 90)
    trial.until("the status is empty", lambda: not trial.addresses(), 60)
    trial.change(type="LoadBalancer")
    trial.served()


@behaviour("balancer.class", MUST, "A Service with another controller's loadBalancerClass stays untouched.", CLASSES)
def of_a_class(trial: Trial) -> None:
    trial.service(loadBalancerClass="example.com/other")
    trial.always(
        "it has no address and no finalizer",
        lambda: not trial.addresses() and not trial.read_service()["metadata"].get("finalizers"),
        30,
    )


@behaviour("balancer.told", MUST, "Events say that a load balancer is being created, and that it exists.", DOCS)
def told(trial: Trial) -> None:
    trial.service()
    trial.served()
    wanted = {"EnsuringLoadBalancer", "EnsuredLoadBalancer"}
    trial.until(
        "both Events",
        lambda: wanted <= {event["reason"] for event in trial.service_events()},
        60,
    )


@behaviour(
    "balancer.deleted-behind",
    SHOULD,
    "A load balancer that somebody deleted in the cloud is created again when its Service changes.",
    "https://github.com/kubernetes/kubernetes/issues/86907",
)
def deleted_behind(trial: Trial) -> None:
    trial.service()
    balancer = trial.balancer(trial.served())
    assert balancer is not None
    trial.cloud.delete_load_balancer(balancer)
    trial.change_port(81)

    def is_made_again() -> bool:
        published = trial.addresses()
        made = [each for each in trial.world.load_balancers() if each.id != balancer.id and each.address in published]
        return any(each.ports == _ports(trial.read_service()) for each in made)

    trial.until("the published address has a load balancer", is_made_again, 90)


@behaviour("balancer.ten", SPEED, "Ten Services that are created at the same time are served within a minute.", DOCS)
def ten(trial: Trial) -> None:
    names = [f"web{number}" for number in range(10)]
    for name in names:
        trial.service(name)
    trial.figures["seconds"] = round(
        trial.until("all have addresses", lambda: all(trial.addresses(name) for name in names), 60), 1
    )


@behaviour(
    "balancer.members-after-refusal",
    SHOULD,
    "Members follow the Nodes while a change of the Service is refused by the cloud.",
    "https://github.com/kubernetes/kubernetes/issues/131729",
    Disturbance.CHANGES_REFUSED,
)
def members_after_refusal(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.change_port(81)
    trial.warned(trial.service_events)
    machine = trial.member(is_backend=True)
    trial.until("the new Node is a member", lambda: trial.has_member(address, machine), 50, NODE_SYNC)
    yield


@behaviour(
    "balancer.refusal-over",
    MUST,
    "A change that was refused is made once the cloud accepts it.",
    DOCS,
    Disturbance.CHANGES_REFUSED,
)
def refusal_over(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.change_port(82)
    trial.warned(trial.service_events)
    yield
    trial.until("the port follows", lambda: _fits(trial, address), 30, BACK_OFF)


def _families(trial: Trial, policy: str, *families: str) -> None:
    """Create the Service `web` with these families. Raises Unsupported if the cluster does not have them."""
    spec: Object = {"ipFamilies": list(families)} if families else {}
    try:
        trial.service(ipFamilyPolicy=policy, **spec)
    except ApiException as error:
        if error.status != 422:
            raise
        raise Unsupported("a cluster with IPv4 and IPv6") from error


@behaviour(
    "balancer.dual-preferred",
    MUST,
    "A Service that prefers two IP families is served, whether the cloud's load balancers have both or not.",
    DUAL,
)
def dual_preferred(trial: Trial) -> None:
    _families(trial, "PreferDualStack")
    address = trial.served()
    trial.until("the ports are right", lambda: _fits(trial, address), 30)


@behaviour("balancer.dual-required", MUST, "A Service that requires two IP families has an address of each one.", DUAL)
def dual_required(trial: Trial) -> None:
    if len(trial.world.settings.families) < 2:
        raise Unsupported("load balancers with IPv4 and IPv6")
    _families(trial, "RequireDualStack")

    def has_both() -> bool:
        return {":" in address for address in trial.addresses()} == {True, False}

    trial.until("an IPv4 address and an IPv6 address", has_both, 90)


@behaviour(
    "balancer.family-told",
    SHOULD,
    "A Service of an IP family that the cloud's load balancers cannot have gets a Warning, and no address of another "
    "family.",
    DUAL,
)
def family_told(trial: Trial) -> None:
    missing = {"IPv4", "IPv6"} - trial.world.settings.families
    if not missing:
        raise Unsupported("a family without load balancers")
    _families(trial, "SingleStack", *missing)
    trial.warned(trial.service_events)
    trial.equal("the addresses in the status", trial.addresses(), [])


def _loud(trial: Trial) -> list[str]:
    """Create Services and wait for their addresses. Return the Services' names. Raises Unsupported."""
    trial.cloud.failing(())  # asked before twenty load balancers are made for it
    names = [f"loud{number}" for number in range(LOUD)]
    for name in names:
        trial.service(name)
    trial.until("the tenant's Services have addresses", lambda: all(trial.addresses(name) for name in names), 180)
    return names


def _fail(trial: Trial, names: list[str], share: Callable[[Iterable[bool]], bool]) -> None:
    """Change the Services, and wait until `any` or `all` of them have failed. Raises Failed."""
    for name in names:
        trial.change_port_of(name, 81)

    def has_failed(name: str) -> bool:
        return any(event["type"] == "Warning" for event in trial.service_events(name))

    trial.until("a Warning about the tenant's Services", lambda: share(has_failed(name) for name in names), 180)


@behaviour(
    "balancer.noisy-new",
    SHOULD,
    "A tenant's new Service is served within half a minute while twenty Services of another tenant fail.",
    CONCURRENCY,
)
def noisy_new(trial: Trial) -> None:
    quiet, names, seconds = trial.neighbour(), _loud(trial), []
    with trial.cloud.failing([balancer for name in names if (balancer := trial.balancer(trial.served(name)))]):
        _fail(trial, names, any)
        for name in (f"web{number}" for number in range(TRIES)):
            quiet.service(name)
            served = functools.partial(quiet.addresses, name)
            seconds.append(quiet.until(f"the Service {name} has an address", served, SOON))
            trial.world.wait(PAUSE)
    trial.figures["seconds at most"] = round(max(seconds), 1)


@behaviour(
    "balancer.noisy-change",
    SHOULD,
    "A tenant's change is made within half a minute while twenty Services of another tenant fail.",
    CONCURRENCY,
)
def noisy_change(trial: Trial) -> None:
    quiet, names, seconds = trial.neighbour(), _loud(trial), []
    quiet.service()
    address = quiet.served()
    with trial.cloud.failing([balancer for name in names if (balancer := trial.balancer(trial.served(name)))]):
        _fail(trial, names, any)
        for port in range(8080, 8080 + TRIES):
            quiet.change_port(port)
            seconds.append(quiet.until(f"the port {port} is there", lambda: _fits(quiet, address), SOON))
            trial.world.wait(PAUSE)
    trial.figures["seconds at most"] = round(max(seconds), 1)


@behaviour(
    "balancer.noisy-over",
    MUST,
    "A change that failed together with nineteen others is made once the cloud accepts it.",
    CONCURRENCY,
)
def noisy_over(trial: Trial) -> None:
    names = _loud(trial)
    addresses = {name: trial.served(name) for name in names}
    with trial.cloud.failing([balancer for address in addresses.values() if (balancer := trial.balancer(address))]):
        _fail(trial, names, all)

    def all_follow() -> bool:
        return all(_fits(trial, address, name) for name, address in addresses.items())

    trial.until("all ports follow", all_follow, 30, BACK_OFF)


def _shared(trial: Trial) -> str:
    """Create two Services with one load balancer; return its address. Raises Unsupported."""
    trial.service()
    address = trial.served()
    balancer = trial.balancer(address)
    assert balancer is not None
    trial.service("more", [{"name": "b", "port": 8080}], trial.cloud.sharing(balancer))
    trial.until("both Services have the address", lambda: trial.addresses("more") == [address], 90)
    return address


def _has_ports(trial: Trial, address: str, *numbers: int) -> bool:
    balancer = trial.balancer(address)
    return balancer is not None and {port for _, port, _ in balancer.ports} == set(numbers)


@behaviour("balancer.address-shared", SHOULD, "Two Services with different ports share a load balancer.", SHARING)
def address_shared(trial: Trial) -> None:
    address = _shared(trial)
    trial.until("it has the ports of both", lambda: _has_ports(trial, address, 80, 8080), 60)


@behaviour(
    "balancer.address-share-left",
    SHOULD,
    "A Service that leaves a shared load balancer takes its own ports with it, and leaves those of the other Service.",
    SHARING,
)
def address_share_left(trial: Trial) -> None:
    address = _shared(trial)
    trial.until("it has the ports of both", lambda: _has_ports(trial, address, 80, 8080), 60)
    trial.kube.delete(f"{trial.services}/more")
    trial.until("the Service is gone", lambda: trial.kube.get(f"{trial.services}/more") is None, 90)
    trial.until("it has the other one's port", lambda: _has_ports(trial, address, 80), 60)
    trial.equal("the address in the status", trial.addresses(), [address])
