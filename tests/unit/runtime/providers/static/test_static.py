# SPDX-License-Identifier: Apache-2.0
"""Machines from the configuration or from a file, and addresses from a pool: what is read, reported and given out."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ccm.cloud import (
    Address,
    AddressType,
    ConfigError,
    Conflict,
    Ingress,
    Instance,
    InstanceRef,
    InstanceState,
    Invalid,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    Port,
    ProviderConfig,
    QuotaExceeded,
    Transient,
)
from ccm.providers.static import StaticCloud, StaticLoadBalancers
from ccm.providers.static import settings as static_settings
from ccm.providers.static.settings import KEYS, MACHINE_KEYS, Settings

CONF = """\
cluster: cellar
region: home
zone: rack-1
machines:
- name: worker-1
  addresses: [10.0.0.1]
- name: worker-2
  id: SN-4711
  type: r640
  zone: rack-2
  addresses:
  - 10.0.0.2
  - {type: ExternalIP, address: "2001:DB8::2"}
  - {type: Hostname, address: two}
  labels: {disk: ssd}
  state: shutdown
"""


def static(text: str) -> StaticCloud:
    return StaticCloud(ProviderConfig(text, "cloud.conf"))


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        static(text)
    return caught.value.problems


def ip(text: str) -> Address:
    return Address(AddressType.INTERNAL_IP, text)


# --- machines in the configuration -----------------------------------------------------------------------------------


async def test_machines_with_all_they_have() -> None:
    machines = (await static(CONF).instances.list_page(None)).instances
    assert machines == (
        Instance(
            "static://cellar/worker-1",
            "worker-1",
            zone="rack-1",
            region="home",
            addresses=(ip("10.0.0.1"), Address(AddressType.HOSTNAME, "worker-1")),
        ),
        Instance(
            "static://cellar/SN-4711",
            "worker-2",
            type="r640",
            zone="rack-2",
            region="home",
            addresses=(
                ip("10.0.0.2"),
                Address(AddressType.EXTERNAL_IP, "2001:db8::2"),
                Address(AddressType.HOSTNAME, "two"),
            ),
            state=InstanceState.SHUTDOWN,
            labels={"disk": "ssd"},
        ),
    )


async def test_a_machine_is_found_by_its_id_or_its_name() -> None:
    instances = static(CONF).instances
    assert (await instances.get(InstanceRef("any", "static://cellar/SN-4711"))).name == "worker-2"
    assert (await instances.get(InstanceRef("worker-2"))).provider_id == "static://cellar/SN-4711"
    for ref in (InstanceRef("worker-1", "static://cellar/worker-9"), InstanceRef("SN-4711")):
        with pytest.raises(NotFound):
            await instances.get(ref)


def test_owns_the_ids_of_its_cluster() -> None:
    instances = static(CONF).instances
    assert instances.owns("static://cellar/worker-1") and instances.owns("static://cellar/gone-long-ago")
    assert not instances.owns("static://attic/worker-1") and not instances.owns("static://cellar/a/b")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param("", ["line 1: expected keys and values (cluster, machines), not nothing"], id="empty"),
        pytest.param("a: [", ["line 1: not YAML: expected the node content, but found '<stream end>'"], id="no-yaml"),
        pytest.param("a: \x00", ["line 1: not YAML: it contains invalid characters"], id="no-text"),
        pytest.param(
            "region: x\n",
            [
                "line 1: cluster: is missing; it is the middle of each providerID, static://CLUSTER/ID",
                "line 1: set exactly one of machines, machines_file, inventory_file",
            ],
            id="missing",
        ),
        pytest.param("cluster: c\nmachines: []\n", ["line 1: lists no machine at all"], id="no-machine"),
        pytest.param(
            "cluster: c\nmachines_file: /x\ninventory_file: /y\n",
            ["line 1: set exactly one of machines, machines_file, inventory_file"],
            id="contradictory",
        ),
        pytest.param(
            "cluster: c\ncluster: d\nmachines_file: /x\ninventory_group: g\n",
            [
                "line 2: cluster: duplicate key",
                "line 4: inventory_group: has an effect only with inventory_file",
            ],
            id="twice-and-useless",
        ),
        pytest.param(
            "cluster: c\nmachines:\n"
            "- name: Node_1\n  addresses: [10.0.0.300]\n"
            "- name: b\n  zone: 7\n  addresses: []\n  colour: red\n"
            "- just-a-name\n"
            "- name: c\n  addresses: [{type: Inner, address: 10.0.0.1}]\n  labels: {a b: x, c: 1}\n  state: asleep\n",
            [
                "line 3: machine 'Node_1': name: 'Node_1' is invalid; expected the Node's name, e.g. worker-1",
                "line 4: machine 'Node_1': addresses: '10.0.0.300' is not an IP address",
                "line 6: machine 'b': zone: expected text, not 7; put numbers in quotes",
                "line 7: machine 'b': addresses: expected a list of addresses, not an empty list",
                "line 8: machine 'b': colour: unknown key; known are name, id, addresses, type, zone, region, "
                "labels, state",
                "line 9: expected a machine with keys and values, such as name and addresses, not 'just-a-name'",
                "line 11: machine 'c': addresses: type 'Inner' is unknown; expected one of InternalIP, ExternalIP, "
                "Hostname, InternalDNS, ExternalDNS",
                "line 12: machine 'c': labels: 'a b' is not a valid label key",
                "line 12: machine 'c': labels: c: 1 is not a valid label value (put numbers in quotes)",
                "line 13: machine 'c': state: expected running or shutdown or suspended, not 'asleep'",
            ],
            id="machines",
        ),
        pytest.param(
            "cluster: c\nmachines:\n- {name: a, addresses: [10.0.0.1]}\n- {name: b, id: a, addresses: [10.0.0.2]}\n"
            "- {name: a, id: z, addresses: [10.0.0.3]}\n",
            [
                "line 4: the id 'a' is already used by the machine in line 3",
                "line 5: the name 'a' is already used by the machine in line 3",
            ],
            id="taken",
        ),
        pytest.param(
            "cluster: c\nload_balancer_addresses: [192.0.2.0/28, '2001:db8::5']\nmachines:\n"
            "- {name: a, addresses: ['2001:DB8::1', {type: ExternalIP, address: 198.51.100.1}]}\n"
            "- {name: b, addresses: ['2001:db8:0::1', {type: ExternalIP, address: 198.51.100.1}]}\n"
            "- {name: c, addresses: [10.0.0.1, {type: ExternalIP, address: 192.0.2.7}]}\n"
            "- {name: d, addresses: [10.0.0.2, '2001:db8::5', '2001:db8::5']}\n",
            [
                "line 5: the address '2001:db8::1' is already used by the machine in line 4",
                "line 6: machine 'c': addresses: 192.0.2.7 is in load_balancer_addresses, which must not contain a "
                "machine's address",
                "line 7: machine 'd': addresses: 2001:db8::5 is in load_balancer_addresses, which must not contain a "
                "machine's address",
            ],
            id="addresses-taken",
        ),
        pytest.param(
            "cluster: c\nmachines_file: /x\nload_balancer_addresses: [10.0.0.9-10.0.0.1, nowhere, 10.0.0.0/8]\n",
            [
                "line 3: load_balancer_addresses: '10.0.0.0/8': more than 65536 addresses",
                "line 3: load_balancer_addresses: '10.0.0.9-10.0.0.1': the range must go from a "
                "lower to a higher address of the same family",
                "line 3: load_balancer_addresses: 'nowhere': 'nowhere' does not appear to be an IPv4 or IPv6 network",
            ],
            id="pool",
        ),
        pytest.param(
            "cluster: c\nmachines_file: /x\nload_balancer_addresses: [7, nowhere, 10.0.0.1-2001:db8::1]\n",
            [
                "line 3: load_balancer_addresses: '10.0.0.1-2001:db8::1': the range must go from a lower to a higher "
                "address of the same family",
                "line 3: load_balancer_addresses: 'nowhere': 'nowhere' does not appear to be an IPv4 or IPv6 network",
                "line 3: load_balancer_addresses: expected text, not 7",
            ],
            id="pool-of-anything",
        ),
        pytest.param(
            "cluster: c\nmachines_file: /x\nload_balancer_addresses: 192.0.2.1\n",
            ["line 3: load_balancer_addresses: expected a list of addresses, ranges A-B, or networks"],
            id="pool-is-no-list",
        ),
        pytest.param(
            "cluster: c\nmachines_file: /x\nload_balancer_addresses: []\n",
            ["line 3: load_balancer_addresses: expected a list of addresses, ranges A-B, or networks"],
            id="pool-is-empty",
        ),
        pytest.param(
            "cluster: c\nmachines:\n- name: a\n  addresses:\n  - 7\n  - {address: 10.0.0.1}\n",
            [
                "line 5: machine 'a': addresses: expected an IP address, or type and address, not 7",
                "line 6: machine 'a': addresses: expected an IP address, or type and address, not a mapping",
            ],
            id="addresses-of-another-form",
        ),
        pytest.param(
            "cluster: c\ncolour: red\nmachines:\n- name: a\n  addresses: [10.0.0.1]\n  labels: [x]\n",
            [
                "line 2: colour: unknown key; known are " + ", ".join(KEYS),
                "line 6: machine 'a': labels: expected keys and values, not a list",
            ],
            id="keys-and-labels",
        ),
    ],
)
def test_every_problem_at_once_with_its_line(text: str, problems: list[str]) -> None:
    assert problems_of(text) == [f"cloud.conf: {problem}" for problem in problems]


def test_anchors_that_hold_themselves_or_stand_for_billions() -> None:
    assert any("an anchor contains itself" in problem for problem in problems_of("cluster: c\nmachines: &a [*a]\n"))
    levels = "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
    assert problems_of(f"a0: &a0 [x]\n{levels}cluster: c\nmachines: *a19\n")


#: Pieces of a configuration, in any order and at any place.
PIECES = st.recursive(
    st.sampled_from([None, True, 0, -1.5, "", "c", "10.0.0.1", "{{ x }}", "2026-99-99", "a" * 300])
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*KEYS, *MACHINE_KEYS, "all", "hosts", "children", "vars", "ansible_host", "ccm_zone"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(PIECES | st.builds(lambda rest: {"cluster": "c", "machines": rest}, PIECES))
@example({"cluster": "c", "machines": [{"name": ["a"], "addresses": {"a": "b"}, "labels": ["x"], "state": {}}]})
@example({"cluster": "c", "machines_file": 3, "load_balancer_addresses": [["a"], {"b": "c"}]})
def test_whatever_stands_there_is_read_or_is_a_list_of_problems(data: object) -> None:
    text = yaml.safe_dump(data)
    for inventory in (False, True):
        with contextlib.suppress(ConfigError):
            Settings.parse(text, "cloud.conf")
        with contextlib.suppress(ConfigError):
            replace(Settings("cloud.conf", "c"), file="/x", is_inventory=inventory).read_file(text)


@given(st.text(alphabet=st.sampled_from("clusterma:- \n[]{}&*!|>'\"?%0.\x00\u2028"), max_size=60))
@example("cluster: 2026-99-99")
@example("a: !!int x")
@example("<<: 3")
def test_no_text_is_a_traceback(text: str) -> None:
    with contextlib.suppress(ConfigError):
        Settings.parse(text, "cloud.conf")


# --- machines in a file ----------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "machines.yaml"
    path.write_text("- {name: a, addresses: [10.0.0.1]}\n- {name: b, addresses: [10.0.0.2]}\n")
    return path


def write(file: Path, text: str | None) -> None:
    """Write the file. None removes it."""
    if text is None:
        file.unlink()
    else:
        file.write_text(text)


async def names(cloud: StaticCloud) -> list[str]:
    return [machine.name for machine in (await cloud.instances.list_page(None)).instances]


async def test_the_file_is_read_again_when_it_changes(file: Path) -> None:
    cloud = static(f"cluster: c\nmachines_file: {file}\n")
    await cloud.start()
    assert await names(cloud) == ["a", "b"]
    write(file, "machines:\n- {name: b, addresses: [10.0.0.2]}\n")
    assert await names(cloud) == ["b"]
    with pytest.raises(NotFound, match=r"machines.yaml lists no machine static://c/a"):
        await cloud.instances.get(InstanceRef("a", "static://c/a"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "line 1: machines: expected a list of machines, not nothing", id="emptied"),
        pytest.param("[]", "lists no machine at all", id="no-machine"),
        pytest.param("- {name: a, addresses: [10.0.0.1]\n", "line 2: not YAML", id="cut-short"),
        pytest.param("- {name: a}\n- {name: b, addresses: [10.0.0.2]}\n", "line 1: machine 'a'", id="one-is-wrong"),
        pytest.param(None, "cannot read .*: No such file", id="removed"),
    ],
)
async def test_a_file_that_became_unusable_says_nothing_about_any_machine(
    file: Path, text: str | None, message: str
) -> None:
    cloud = static(f"cluster: c\nmachines_file: {file}\n")
    await cloud.start()
    write(file, text)
    for call in (cloud.instances.list_page(None), cloud.instances.get(InstanceRef("a", "static://c/a"))):
        with pytest.raises(Transient, match=message):
            await call


async def test_a_machine_of_the_file_cannot_have_an_address_of_the_pool(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        await static(f"cluster: c\nmachines_file: {file}\nload_balancer_addresses: [10.0.0.2-10.0.0.9]\n").start()
    told = "machine 'b': addresses: 10.0.0.2 is in load_balancer_addresses, which must not contain a machine's address"
    assert caught.value.problems == [f"{file}: line 2: {told}"]


async def test_at_the_start_an_unusable_file_is_a_problem_of_the_configuration(file: Path) -> None:
    write(file, "- {name: a}\n- {name: b}\n")
    with pytest.raises(ConfigError) as caught:
        await static(f"cluster: c\nmachines_file: {file}\n").start()
    assert caught.value.problems == [
        f"{file}: line 1: machine 'a': addresses: is missing",
        f"{file}: line 2: machine 'b': addresses: is missing",
    ]


# --- addresses of a pool ---------------------------------------------------------------------------------------------

SPEC = LoadBalancerSpec("c", "uid-1", "shop", "web", (Port("http", "TCP", 80, 30080),))


class Statuses(dict[str, str]):
    """Address -> the UID of the Service whose status has the address, as the framework knows it."""

    def holder(self, address: str) -> str | None:
        return self.get(address)


class Process:
    """One run of the process, with its memory. The status of all Services outlives the run."""

    def __init__(self, pool: str = "192.0.2.1-192.0.2.3", statuses: Statuses | None = None) -> None:
        settings = Settings.parse(f"cluster: c\nmachines_file: /x\nload_balancer_addresses: [{pool}]\n", "cloud.conf")
        self.balancers = StaticLoadBalancers(settings)
        self.balancers.use_allocations(Statuses() if statuses is None else statuses)

    async def ensure(self, spec: LoadBalancerSpec) -> list[str]:
        return [ingress.ip for ingress in (await self.balancers.ensure(spec, [])).ingress]


def service(number: int, *has: str, **more: Any) -> LoadBalancerSpec:
    ingress = tuple(Ingress(ip=each) for each in has)
    return replace(SPEC, uid=f"uid-{number}", name=f"web-{number}", ingress=ingress, **more)


def test_without_a_pool_load_balancers_are_somebody_elses() -> None:
    assert static(CONF).load_balancers is None


async def test_everybody_gets_an_address_of_its_own_until_there_is_none() -> None:
    process = Process()
    given = [await process.ensure(service(number)) for number in range(3)]
    assert sorted(given) == [["192.0.2.1"], ["192.0.2.2"], ["192.0.2.3"]]
    assert [await process.ensure(service(number)) for number in range(3)] == given
    with pytest.raises(QuotaExceeded, match="all 3 IPv4 addresses of load_balancer_addresses are in use"):
        await process.ensure(service(3))
    await process.balancers.delete(service(1))
    assert await process.ensure(service(3)) == given[1]


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_after_a_restart_the_first_to_ask_gets_no_address_of_another_service() -> None:
    process = Process(statuses=Statuses({"192.0.2.3": "uid-1", "192.0.2.1": "uid-2"}))
    for wanted in ("192.0.2.3", "192.0.2.1"):
        with pytest.raises(Conflict, match=f"^the address {wanted} is in use$"):
            await process.ensure(service(9, load_balancer_ip=wanted))
    assert await process.ensure(service(9)) == ["192.0.2.2"]
    with pytest.raises(QuotaExceeded):
        await process.ensure(service(8))
    assert await process.ensure(service(1, "192.0.2.3")) == ["192.0.2.3"]
    assert await process.ensure(service(2, "192.0.2.1")) == ["192.0.2.1"]


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_no_address_is_given_before_it_is_known_who_has_which() -> None:
    settings = Settings.parse("cluster: c\nmachines_file: /x\nload_balancer_addresses: [192.0.2.1]\n", "cloud.conf")
    for spec in (SPEC, replace(SPEC, load_balancer_ip="192.0.2.1"), service(1, "192.0.2.1")):
        with pytest.raises(Transient, match="until it is known which addresses Services have"):
            await StaticLoadBalancers(settings).ensure(spec, [])


def test_a_range_of_one_address_and_a_pool_as_large_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def pool(text: str) -> list[str]:
        text = f"cluster: c\nmachines_file: /x\nload_balancer_addresses: [{text}]\n"
        return [str(each) for each in Settings.parse(text, "cloud.conf").pool]

    assert pool("192.0.2.1-192.0.2.1") == ["192.0.2.1"]
    monkeypatch.setattr(static_settings, "LARGEST_POOL", 4)
    assert len(pool("192.0.2.1-192.0.2.4")) == 4
    with pytest.raises(ConfigError, match="more than 4 addresses"):
        pool("192.0.2.1-192.0.2.5")


async def test_an_address_that_left_the_pool_is_not_kept() -> None:
    process = Process()
    assert await process.ensure(service(3, "198.51.100.1")) in (["192.0.2.1"], ["192.0.2.2"], ["192.0.2.3"])


async def test_of_two_services_with_one_address_in_their_status_the_younger_gets_another_and_a_warning() -> None:
    process = Process(statuses=Statuses({"192.0.2.3": "uid-1"}))
    made = await process.balancers.ensure(service(2, "192.0.2.3"), [])
    (new,) = made.ingress
    assert new.ip != "192.0.2.3"
    assert made.warnings == (
        f"the address 192.0.2.3 in the status of this Service is in use by an older Service: "
        f"this one gets {new.ip} instead",
    )
    kept = await process.balancers.ensure(service(1, "192.0.2.3"), [])
    assert ([each.ip for each in kept.ingress], kept.warnings) == (["192.0.2.3"], ())


async def test_a_service_made_anew_finds_the_address_that_it_had() -> None:
    process = Process("192.0.2.0/24")
    had = await process.ensure(service(1))
    await process.balancers.delete(service(1))
    assert await process.ensure(replace(service(1), uid="another")) == had


async def test_a_wished_address() -> None:
    process = Process()
    assert await process.ensure(service(1, load_balancer_ip="192.0.2.2")) == ["192.0.2.2"]
    with pytest.raises(Conflict, match=r"^the address 192\.0\.2\.2 is in use$"):
        await process.ensure(service(2, load_balancer_ip="192.0.2.2"))
    with pytest.raises(Invalid, match="not in load_balancer_addresses"):
        await process.ensure(service(2, load_balancer_ip="10.0.0.1"))


async def test_both_families_where_the_pool_has_them() -> None:
    process = Process('192.0.2.1, "2001:db8::1"')
    assert await process.ensure(service(1, ip_families=("IPv6", "IPv4"))) == ["2001:db8::1", "192.0.2.1"]
    with pytest.raises(NotImplementedByCloud, match="has no IPv6 address"):
        await Process().ensure(service(1, ip_families=("IPv6",)))


async def test_a_changed_configuration_gives_no_address_of_another_service() -> None:
    """Each change of the configuration creates a new provider, which must respect addresses that the old one gave."""
    statuses = Statuses()
    before = Process("192.0.2.1-192.0.2.2", statuses)
    statuses["192.0.2.1"] = SPEC.uid  # the framework records this at once
    assert await before.ensure(replace(SPEC, load_balancer_ip="192.0.2.1")) == ["192.0.2.1"]
    after = Process("192.0.2.1-192.0.2.9", statuses)
    with pytest.raises(NotFound):  # the framework then ensures it again
        await after.balancers.update_backends(SPEC, [])
    with pytest.raises(Conflict):
        await after.ensure(service(2, load_balancer_ip="192.0.2.1"))
    assert await after.ensure(replace(SPEC, load_balancer_ip="192.0.2.1")) == ["192.0.2.1"]
