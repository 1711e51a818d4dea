# SPDX-License-Identifier: Apache-2.0
"""The provider `sim` against the simulator's HTTP server: what it reads and writes, and which errors it raises."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    CloudError,
    ConfigError,
    Conflict,
    InstanceRef,
    InstanceState,
    Invalid,
    Limits,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    Port,
    ProviderConfig,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Route,
    Transient,
    Unauthorized,
    VolumeRef,
    registry,
)
from ccm.gateway.gateway import Gateway
from ccm.providers.sim import SimCloud
from ccm.providers.sim.volumes import CSI_DRIVER
from ccm_simcloud.testing import Simulator, running_simulator
from tests.later import late

CONFIG: dict[str, Any] = {
    "projects": [
        {
            "name": "demo",
            "token": "very-secret-token",
            "region": "north",
            "load_balancer_addresses": "10.89.77.200-10.89.77.202",
            "volumes": [{"name": "data", "zone": "north-a"}],
        }
    ]
}
SPEC = LoadBalancerSpec(
    cluster="c1", uid="1111-2222", namespace="shop", name="web", ports=(Port("http", "TCP", 80, 30080),)
)


@contextlib.asynccontextmanager
async def running(conf: dict[str, Any] | None = None, **config: Any) -> AsyncIterator[tuple[Simulator, SimCloud]]:
    async with running_simulator(CONFIG | config) as simulator:
        provider = SimCloud(ProviderConfig(simulator.conf(**conf or {}), "/etc/ccm/cloud/cloud.conf"))
        try:
            await provider.start()
            yield simulator, provider
        finally:
            await provider.close()


async def _until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def backend(simulator: Simulator, name: str, address: str) -> Backend:
    row = simulator.add_instance(name, addresses=[{"type": "InternalIP", "address": address}])
    return Backend(name, f"sim://north/{row.id}", (Address(AddressType.INTERNAL_IP, address),))


# Configuration


def test_every_problem_of_the_configuration_at_once() -> None:
    text = "endpoint: ftp://x\npage_size: none\nrequest_timeout: 0\ntokn: very-secret\ntoken: 12\ntoken_file: /x\n"
    with pytest.raises(ConfigError) as caught:
        SimCloud(ProviderConfig(text, "/etc/cloud.conf"))
    problems = "\n".join(caught.value.problems)
    assert all(problem.startswith("/etc/cloud.conf: ") for problem in caught.value.problems)
    for key in (
        "tokn: unknown",
        "endpoint:",
        "project: is missing",
        "page_size:",
        "request_timeout:",
        "token: expected text",
    ):
        assert key in problems
    assert "exactly one of them" in problems
    assert "very-secret" not in problems


def test_the_configuration_says_what_the_project_bears() -> None:
    text = "endpoint: http://h:1\nproject: p\ntoken: t\n"
    limits = SimCloud(ProviderConfig(text + "calls_per_second: 2.5\nburst: 3\nconcurrency: 4\n", "cloud.conf")).limits
    assert (limits.calls_per_second, limits.burst, limits.concurrency) == (2.5, 3, 4)
    assert SimCloud(ProviderConfig(text, "cloud.conf")).limits == Limits()
    with pytest.raises(ConfigError, match="burst: must be greater than 0"):
        SimCloud(ProviderConfig(text + "burst: 0\n", "cloud.conf"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "just text",
        "endpoint: !!bool perhaps",
        "endpoint: http://h:1\nproject: p",
        "endpoint: http://user:very-secret@h:1\nproject: p\ntoken: t",
    ],
)
def test_a_configuration_that_cannot_be_used(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SimCloud(ProviderConfig(text, "cloud.conf"))
    assert all(problem.startswith("cloud.conf: ") for problem in caught.value.problems)
    assert "very-secret" not in str(caught.value)


def test_the_registry_finds_it_and_secrets_stay_inside() -> None:
    config = ProviderConfig("endpoint: http://h:1\nproject: p\ntoken: very-secret", "cloud.conf")
    provider = registry.create("sim", config)
    assert isinstance(provider, SimCloud)
    assert "very-secret" not in f"{provider!r} {provider._api.settings!r} {vars(provider._api)!r}"


async def test_a_certificate_file_that_is_none(tmp_path: Path) -> None:
    provider = SimCloud(ProviderConfig(f"endpoint: https://h:1\nproject: p\ntoken: t\nca_file: {tmp_path}/none"))
    with pytest.raises(ConfigError, match="ca_file"):
        await provider.start()


async def test_a_wrong_token_at_start_says_what_to_check() -> None:
    async with running_simulator(CONFIG) as simulator:
        conf = simulator.conf(token="very-wrong-token")
        provider = SimCloud(ProviderConfig(conf, "/etc/ccm/cloud/cloud.conf"))
        with pytest.raises(Unauthorized) as caught:
            await provider.start()
        await provider.close()
    assert "/etc/ccm/cloud/cloud.conf" in str(caught.value) and "token" in str(caught.value)
    assert "very-wrong-token" not in str(caught.value)


async def test_nobody_at_the_endpoint() -> None:
    provider = SimCloud(ProviderConfig("endpoint: http://127.0.0.1:1\nproject: p\ntoken: t"))
    with pytest.raises(Transient, match=r"127\.0\.0\.1:1"):
        await provider.start()
    await provider.close()


async def test_the_token_file_is_read_again_when_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("very-secret-token\n")
    async with running_simulator(CONFIG) as simulator:
        conf = f"endpoint: {simulator.url}\nproject: demo\ntoken_file: {path}\n"
        provider = SimCloud(ProviderConfig(conf))
        await provider.start()
        simulator.expire_tokens()
        path.write_text("wrong")
        with pytest.raises(Unauthorized, match="token"):
            await provider.routes.list("c1")
        path.write_text("very-secret-token")
        assert await provider.routes.list("c1") == []
        path.write_text("\n")
        simulator.expire_tokens()
        with pytest.raises(Unauthorized, match=r"token_file .*: it is empty"):
            await provider.routes.list("c1")
        path.unlink()
        with pytest.raises(Unauthorized, match="No such file"):
            await provider.routes.list("c1")
        await provider.close()


# Credentials while it runs


async def test_an_expired_token_is_renewed_once_for_all_calls() -> None:
    async with running(timing={"token_lifetime": 60}) as (simulator, provider):
        simulator.add_instances(2)
        assert simulator.calls("tokens.create") == 1
        simulator.advance(61)
        pages = await asyncio.gather(*(provider.instances.list_page(None) for _ in range(5)))
        assert [len(page.instances) for page in pages] == [2] * 5
        assert simulator.calls("tokens.create") == 2


async def test_a_missing_right_is_not_mended_by_a_new_token() -> None:
    async with running() as (simulator, provider):
        simulator.fault(action="status", status=403, code="forbidden", match={"operation": "routes.list"})
        with pytest.raises(Unauthorized, match="forbidden"):
            await provider.routes.list("c1")
        assert simulator.calls("routes.list") == simulator.calls("tokens.create") == 1


async def test_a_token_that_stays_refused_is_not_renewed_for_ever() -> None:
    async with running() as (simulator, provider):
        simulator.fault(action="status", status=401, match={"operation": "instances.list"})
        with pytest.raises(Unauthorized):
            await provider.instances.list_page(None)
        assert simulator.calls("instances.list") == 2
        assert simulator.calls("tokens.create") == 2


# Errors


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"action": "status", "status": 500}, Transient),
        ({"action": "status", "status": 502, "body": "html"}, Transient),
        ({"action": "status", "status": 404, "body": "html"}, Transient),
        ({"action": "status", "status": 404, "code": "project_not_found"}, Transient),
        ({"action": "status", "status": 404, "code": "instance_not_found"}, NotFound),
        ({"action": "status", "status": 302, "body": "html"}, Transient),
        ({"action": "status", "status": 200, "body": "html"}, Transient),
        ({"action": "status", "status": 401}, Unauthorized),
        ({"action": "status", "status": 403, "code": "forbidden"}, Unauthorized),
        ({"action": "status", "status": 403, "code": "quota_exceeded"}, QuotaExceeded),
        ({"action": "status", "status": 409, "code": "name_in_use"}, Conflict),
        ({"action": "status", "status": 409, "code": "busy"}, RetryAfter),
        ({"action": "status", "status": 409, "body": "html"}, Conflict),
        ({"action": "status", "status": 400, "code": "invalid"}, Invalid),
        ({"action": "status", "status": 400, "body": "html"}, Transient),
        ({"action": "rate_limit", "per_second": 0.001, "burst": 1, "retry_after": 7}, RateLimited),
        ({"action": "timeout"}, Transient),
        ({"action": "hang_up"}, Transient),
        ({"action": "truncate"}, Transient),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value.__name__,
)
async def test_what_goes_wrong_becomes(fault: dict[str, Any], expected: type[CloudError]) -> None:
    async with running({"request_timeout": 60}) as (simulator, provider):
        row = simulator.add_instance("w1")
        ref = InstanceRef("w1", f"sim://north/{row.id}")
        if fault["action"] == "rate_limit":
            simulator.fault(**fault, match={"operation": "instances.get"})
            await provider.instances.get(ref)
            call = provider.instances.get(ref)
        else:
            call = provider.instances.get(ref)
            number = simulator.fault(**fault, match={"operation": "instances.get"})
            if fault["action"] == "timeout":
                call = late(call, _until(lambda: simulator.server.faults.active[number].hits), 60)
        with pytest.raises(CloudError) as caught:
            await call
        assert type(caught.value) is expected
        assert "very-secret-token" not in str(caught.value)
        if expected is RateLimited:
            assert caught.value.retry_after == 7
        if expected in (Conflict, Invalid, Unauthorized, QuotaExceeded) and "body" not in fault:
            assert "simulated fault" in str(caught.value)


# Instances


async def test_an_instance_with_all_it_has() -> None:
    async with running() as (simulator, provider):
        addresses = [{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "Hostname", "address": "w1"}]
        row = simulator.add_instance(
            "w1", type="sim.large", zone="north-b", addresses=addresses, labels={"rack": "r1"}, state="stopped"
        )
        found = await provider.instances.get(InstanceRef("w1"))
        assert found.provider_id == f"sim://north/{row.id}"
        assert (found.name, found.type, found.zone, found.region) == ("w1", "sim.large", "north-b", "north")
        assert found.addresses == (
            Address(AddressType.INTERNAL_IP, "10.0.0.2"),
            Address(AddressType.HOSTNAME, "w1"),
        )
        assert (found.state, found.labels) == (InstanceState.SHUTDOWN, {"rack": "r1"})
        assert await provider.instances.get(InstanceRef("renamed-since", found.provider_id)) == found
        page = await provider.instances.list_page(None)
        assert (list(page.instances), page.next, page.total) == ([found], None, 1)


async def test_gone_and_ambiguous_instances() -> None:
    async with running() as (simulator, provider):
        with pytest.raises(NotFound, match="'w1'"):
            await provider.instances.get(InstanceRef("w1"))
        with pytest.raises(NotFound):
            await provider.instances.get(InstanceRef("w1", "sim://north/i-00000000ffff"))
        simulator.add_instance("w1")
        simulator.add_instance("w1")
        with pytest.raises(Conflict, match="2 instances"):
            await provider.instances.get(InstanceRef("w1"))


async def test_a_name_is_not_gone_when_the_listing_is_incomplete() -> None:
    async with running() as (simulator, provider):
        simulator.add_instance("w1")
        simulator.fault(action="short_list")
        with pytest.raises(Transient, match="0 of 1"):
            await provider.instances.get(InstanceRef("w1"))


async def test_owns_only_the_form_it_writes_and_its_own_region() -> None:
    async with running() as (_, provider):
        assert provider.instances.owns("sim://north/i-00000000002a")
        for foreign in (
            "sim://south/i-00000000002a",
            "sim:///i-00000000002a",
            "sim://north/i-00000000002a/x",
            "sim://north/i-2a",
            "sim://north/i-00000000002A",
            "SIM://north/i-00000000002a",
            "sim://north/i-00000000002a\n",
            "aws:///eu-1a/i-00000000002a",
            "i-00000000002a",
            "",
        ):
            assert not provider.instances.owns(foreign), foreign


async def test_through_the_gateway_many_questions_cost_the_pages_of_one_listing() -> None:
    async with running({"page_size": 1000}) as (simulator, provider):
        rows = simulator.add_instances(2500)
        gateway = Gateway(provider)
        assert gateway.instances is not None
        answers = await asyncio.gather(
            *(gateway.instances.lookup(InstanceRef(row.name), not_before=0.0) for row in rows[:300])
        )
        assert [answer.name for answer in answers] == [row.name for row in rows[:300]]
        assert simulator.calls("instances.list") == 3 and simulator.calls("instances.get") == 0
        await gateway.instances.close()


@pytest.mark.parametrize("lie", ["empty_list", "short_list", "truncate"])
async def test_through_the_gateway_no_lie_of_a_listing_is_an_instance_gone(lie: str) -> None:
    async with running({"page_size": 10}) as (simulator, provider):
        simulator.add_instances(25)
        gateway = Gateway(provider)
        assert gateway.instances is not None
        simulator.fault(action=lie)
        names = [InstanceRef(f"node-{number}") for number in range(25)]
        answers = await asyncio.gather(
            *(gateway.instances.lookup(ref, not_before=0.0) for ref in names), return_exceptions=True
        )
        assert {type(answer) for answer in answers} == {Transient}
        await gateway.instances.close()


# Load balancers


async def test_a_load_balancer_is_created_once_updated_and_deleted() -> None:
    async with running() as (simulator, provider):
        balancers = provider.load_balancers
        one, two = backend(simulator, "w1", "10.89.77.12"), backend(simulator, "w2", "10.89.77.13")
        made = await balancers.ensure(SPEC, [one])
        assert made.ready and made.ingress[0].ip == "10.89.77.200"
        assert made.service_uid == SPEC.uid and made.fingerprint == balancers.fingerprint(SPEC, [one])
        assert await balancers.list("c1") == [made] == [await balancers.get(SPEC)]
        assert await balancers.list("c2") == []
        assert await balancers.ensure(SPEC, [one]) == made
        assert simulator.calls("load_balancers.*", writes=True) == 1
        updated = await balancers.update_backends(SPEC, [two, one])
        assert updated.fingerprint == balancers.fingerprint(SPEC, [one, two])
        row = next(iter(simulator.project().load_balancers.rows.values()))
        assert [target.address for target in row.targets] == ["10.89.77.12", "10.89.77.13"]
        await balancers.delete(SPEC)
        with pytest.raises(NotFound):
            await balancers.delete(SPEC)
        with pytest.raises(NotFound):
            await balancers.get(SPEC)
        with pytest.raises(NotFound):
            await balancers.update_backends(SPEC, [one])


async def test_the_cloud_gets_the_whole_wish() -> None:
    spec = replace(
        SPEC,
        ports=(Port("dns", "UDP", 53, 30053), Port("http", "TCP", 80, 30080)),
        source_ranges=("192.168.0.0/16", "10.0.0.0/8"),
        load_balancer_ip="10.89.77.201",
        session_affinity="ClientIP",
        health_check_node_port=32000,
    )
    async with running() as (simulator, provider):
        foreign = Backend("x", "aws:///a/i-1", (Address(AddressType.INTERNAL_IP, "10.0.0.9"),))
        addressless = Backend("y", "sim://north/i-00000000ffff")
        await provider.load_balancers.ensure(spec, [foreign, backend(simulator, "w1", "10.89.77.12"), addressless])
        row = next(iter(simulator.project().load_balancers.rows.values()))
        assert row.name == "a11112222" and row.ip == "10.89.77.201"
        assert [(port.protocol, port.port, port.node_port) for port in row.ports] == [
            ("UDP", 53, 30053),
            ("TCP", 80, 30080),
        ]
        assert row.source_ranges == ("10.0.0.0/8", "192.168.0.0/16")
        assert row.session_affinity == "ClientIP"
        assert row.health_check is not None and row.health_check.node_port == 32000
        assert [target.address for target in row.targets] == ["10.89.77.12"]
        assert {key: row.tags[key] for key in ("cluster", "service_uid")} == {"cluster": "c1", "service_uid": SPEC.uid}
        changed = replace(spec, source_ranges=(), health_check_node_port=0, ports=spec.ports[:1])
        await provider.load_balancers.ensure(changed, [])
        row = next(iter(simulator.project().load_balancers.rows.values()))
        assert (row.source_ranges, row.health_check, len(row.ports), row.targets) == ((), None, 1, ())


@pytest.mark.parametrize(
    "change",
    [
        {"ports": (Port("http", "TCP", 80, 30081),)},
        {"source_ranges": ("10.0.0.0/8",)},
        {"session_affinity": "ClientIP"},
        {"health_check_node_port": 32000},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_change_is_written_and_changes_the_fingerprint(change: dict[str, Any]) -> None:
    async with running() as (simulator, provider):
        before = await provider.load_balancers.ensure(SPEC, [])
        after = await provider.load_balancers.ensure(replace(SPEC, **change), [])
        assert before.fingerprint != after.fingerprint
        assert simulator.calls("load_balancers.update") == 1


async def test_updating_backends_does_not_claim_what_it_did_not_write() -> None:
    async with running() as (simulator, provider):
        balancers = provider.load_balancers
        await balancers.ensure(SPEC, [])
        changed = replace(SPEC, source_ranges=("10.0.0.0/8",))
        one = backend(simulator, "w1", "10.89.77.12")
        assert (await balancers.update_backends(changed, [one])).fingerprint == balancers.fingerprint(SPEC, [one])
        await balancers.ensure(changed, [one])
        assert next(iter(simulator.project().load_balancers.rows.values())).source_ranges == ("10.0.0.0/8",)


@pytest.mark.parametrize(("mode", "ip_mode", "health"), [("proxy", "Proxy", None), ("pass-through", "VIP", 10256)])
async def test_nodes_see_what_the_cloud_says_of_its_load_balancers(mode: str, ip_mode: str, health: int | None) -> None:
    project = CONFIG["projects"][0] | {"load_balancer_mode": mode}
    without = replace(SPEC, ports=(Port("http", "TCP", 80, 0),))
    async with running(projects=[project]) as (simulator, provider):
        balancers = provider.load_balancers
        one = backend(simulator, "w1", "10.89.77.12")
        assert provider.needs_node_ports is (mode == "proxy"), "what the framework refuses before it asks the provider"
        if ip_mode == "VIP":
            made = await balancers.ensure(without, [one])
            assert made.fingerprint == balancers.fingerprint(without, [one]) != balancers.fingerprint(SPEC, [one])
        else:
            with pytest.raises(Invalid, match="allocateLoadBalancerNodePorts"):
                await balancers.ensure(without, [one])
        made = await balancers.ensure(SPEC, [one])
        assert [each.ip_mode for each in made.ingress] == [ip_mode]
        assert await balancers.list("c1") == [made] == [await balancers.get(SPEC)]
        (row,) = simulator.project().load_balancers.rows.values()
        assert row.mode == mode and (row.health_check and row.health_check.node_port) == health
        await balancers.ensure(replace(SPEC, health_check_node_port=32000), [one])
        (row,) = simulator.project().load_balancers.rows.values()
        assert row.health_check is not None and row.health_check.node_port == 32000, "that of policy Local decides"


async def test_while_the_cloud_works_it_is_not_ready_and_changes_come_later() -> None:
    timing = {"load_balancer_create": 10, "load_balancer_update": 10, "load_balancer_delete": 10}
    async with running(timing=timing) as (simulator, provider):
        balancers = provider.load_balancers
        made = await balancers.ensure(SPEC, [])
        assert not made.ready and made.ingress == ()
        assert await balancers.ensure(SPEC, []) == made
        changed = replace(SPEC, source_ranges=("10.0.0.0/8",))
        one = backend(simulator, "w1", "10.89.77.12")
        busy: list[Callable[[], Awaitable[Any]]] = [
            lambda: balancers.ensure(changed, []),
            lambda: balancers.update_backends(SPEC, [one]),
            lambda: balancers.delete(SPEC),
        ]
        for attempt in busy:
            with pytest.raises(RetryAfter):
                await attempt()
        simulator.advance(10)
        assert (await balancers.get(SPEC)).ready
        updated = await balancers.ensure(changed, [])
        assert not updated.ready and updated.ingress[0].ip == "10.89.77.200"
        simulator.advance(10)
        for _ in range(2):
            with pytest.raises(RetryAfter, match="being deleted"):
                await balancers.delete(SPEC)
        with pytest.raises(RetryAfter, match="being deleted"):
            await balancers.ensure(changed, [])
        simulator.advance(10)
        with pytest.raises(NotFound):
            await balancers.delete(SPEC)


async def test_what_belongs_to_others_is_never_touched() -> None:
    async with running() as (simulator, provider):
        balancers = provider.load_balancers
        theirs = replace(SPEC, cluster="c2")
        await balancers.ensure(theirs, [])
        before = dict(simulator.project().load_balancers.rows)
        with pytest.raises(Conflict, match=r"name_in_use.*'c2'"):
            await balancers.ensure(SPEC, [])
        with pytest.raises(NotFound):
            await balancers.get(SPEC)
        with pytest.raises(NotFound):
            await balancers.update_backends(SPEC, [])
        with pytest.raises(NotFound):
            await balancers.delete(SPEC)
        taken = replace(SPEC, uid="3333", load_balancer_ip="10.89.77.200")
        with pytest.raises(
            Conflict, match=r"address_in_use: address 10\.89\.77\.200 is in use$"
        ):  # the message does not name the holder
            await balancers.ensure(taken, [])
        assert simulator.project().load_balancers.rows == before


async def test_an_answer_that_was_lost_makes_no_second_load_balancer() -> None:
    async with running() as (simulator, provider):
        simulator.fault(action="hang_up", after_effect=True, count=1, match={"operation": "load_balancers.create"})
        with pytest.raises(Transient):
            await provider.load_balancers.ensure(SPEC, [])
        simulator.fault(action="stale", seconds=30, count=1, match={"operation": "load_balancers.list"})
        with pytest.raises(RetryAfter, match="already_exists"):
            await provider.load_balancers.ensure(SPEC, [])
        await provider.load_balancers.ensure(SPEC, [])
        assert len(simulator.project().load_balancers.rows) == 1


async def test_what_the_cloud_cannot_do() -> None:
    async with running() as (simulator, provider):
        balancers = provider.load_balancers
        with pytest.raises(NotImplementedByCloud, match="SCTP"):
            await balancers.ensure(replace(SPEC, ports=(Port("x", "SCTP", 1, 30001),)), [])
        with pytest.raises(NotImplementedByCloud, match="IPv4"):
            await balancers.ensure(replace(SPEC, ip_families=("IPv6",)), [])
        made = await balancers.ensure(SPEC, [])
        with pytest.raises(Conflict, match=made.ingress[0].ip):
            await balancers.ensure(replace(SPEC, load_balancer_ip="10.89.77.202"), [])
        row = next(iter(simulator.project().load_balancers.rows))
        simulator.project().break_load_balancer(row, "power failure")
        with pytest.raises(Conflict, match="power failure"):
            await balancers.get(SPEC)
        assert (await balancers.ensure(SPEC, [])).ready
        (again,) = simulator.project().load_balancers.rows
        assert again != row, "what failed can only be replaced"


@pytest.mark.threat("tenant-own-load-balancers-only")
@pytest.mark.parametrize("seed", range(8))
async def test_services_that_ask_at_a_time_have_an_address_each_and_keep_it(seed: int) -> None:
    """Tenants ask for each other's addresses and delete Services at random, beside a second process."""
    chance = random.Random(seed)
    pool = [f"10.89.77.{number}" for number in range(200, 203)]
    async with running() as (simulator, provider):
        clouds = [provider, SimCloud(provider.config)]
        await clouds[1].start()
        try:
            all_desired = {f"uid-{number}": chance.choice([*pool, ""]) for number in range(6)}
            held: dict[str, str] = {}

            async def act(uid: str) -> None:
                balancers = chance.choice(clouds).load_balancers
                spec = replace(SPEC, uid=uid, load_balancer_ip=all_desired[uid])
                if chance.random() < 0.3:
                    held.pop(uid, None)
                    with contextlib.suppress(NotFound, RetryAfter):
                        await balancers.delete(spec)
                    return
                with contextlib.suppress(Conflict, QuotaExceeded, RetryAfter):
                    (ingress,) = (await balancers.ensure(spec, [])).ingress
                    assert held.setdefault(uid, ingress.ip) == ingress.ip, "nobody loses an address"

            for _ in range(15):
                await asyncio.gather(*map(act, chance.sample(sorted(all_desired), 3)))
                assert len(set(held.values())) == len(held), held
                there = {row.tags["service_uid"]: row.ip for row in simulator.project().load_balancers.rows.values()}
                assert there == held
        finally:
            await clouds[1].close()


async def test_no_address_left_is_a_quota() -> None:
    async with running() as (_, provider):
        for number in range(3):
            await provider.load_balancers.ensure(replace(SPEC, uid=str(number)), [])
        with pytest.raises(QuotaExceeded, match="all 3"):
            await provider.load_balancers.ensure(replace(SPEC, uid="3"), [])


async def test_a_fingerprint_is_of_the_backends_given_and_not_of_others_seen_before() -> None:
    """The provider remembers the last few sets of backends by identity, because hundreds of Services share a set."""
    async with running() as (_, provider):
        address = (Address(AddressType.INTERNAL_IP, "10.0.0.1"),)
        sets = [(Backend("n", f"sim://north/i-{number:012x}", address),) for number in range(6)]
        first = [provider.load_balancers.fingerprint(SPEC, each) for each in sets]
        assert len(set(first)) == 6
        for backends, fingerprint in zip(sets, first, strict=True):
            assert provider.load_balancers.fingerprint(SPEC, backends) == fingerprint
            assert provider.load_balancers.fingerprint(SPEC, list(backends)) == fingerprint
        changing = list(sets[0])
        before = provider.load_balancers.fingerprint(SPEC, changing)
        changing.append(sets[1][0])
        assert provider.load_balancers.fingerprint(SPEC, changing) != before


# Routes and volumes


async def test_routes() -> None:
    async with running({"page_size": 2}) as (simulator, provider):
        routes = provider.routes
        ids = [f"sim://north/{row.id}" for row in simulator.add_instances(3)]
        wanted = [Route(f"10.244.{number}.0/24", id_) for number, id_ in enumerate(ids)]
        for route in wanted:
            await routes.create("c1", route)
        listed = await routes.list("c1")
        assert [replace(route, id="") for route in listed] == [replace(route, owner="c1") for route in wanted]
        with pytest.raises(Conflict, match=r"destination_in_use.*of cluster 'c1'"):
            await routes.create("c2", wanted[0])
        simulator.project().delete_instance(ids[0].rpartition("/")[2])
        assert (await routes.list("c1"))[0] == replace(listed[0], provider_id="", blackhole=True)
        await routes.delete("c1", listed[0])
        await routes.delete("c1", listed[0])
        assert await routes.list("c1") == listed[1:]
        with pytest.raises(Invalid, match="aws"):
            await routes.create("c1", Route("10.244.9.0/24", "aws:///a/i-1"))
        simulator.fault(action="status", status=404, body="html", match={"operation": "routes.delete"})
        with pytest.raises(Transient):
            await routes.delete("c1", listed[1])


async def test_labels_of_volumes() -> None:
    async with running() as (simulator, provider):
        handle = simulator.project().volumes.ids[0]
        assert await provider.volumes.labels(VolumeRef(CSI_DRIVER, handle)) == {
            "topology.kubernetes.io/zone": "north-a",
            "topology.kubernetes.io/region": "north",
        }
        with pytest.raises(NotFound):
            await provider.volumes.labels(VolumeRef(CSI_DRIVER, "v-00000000ffff"))
        with pytest.raises(Invalid, match="form"):
            await provider.volumes.labels(VolumeRef(CSI_DRIVER, "../instances"))
        with pytest.raises(NotImplementedByCloud, match=r"ebs\.csi"):
            await provider.volumes.labels(VolumeRef("ebs.csi.aws.com", handle))


async def test_quotas_are_those_that_have_a_limit() -> None:
    async with running(limits={"load_balancers": 4, "volumes": 1}) as (simulator, provider):
        backend(simulator, "w9", "10.89.77.99")
        found = await provider.quotas.list()
        assert [(each.kind, each.limit) for each in found] == [("load balancers", 4), ("volumes", 1)]
        assert found[0].used == 0
    async with running() as (_, provider):
        assert await provider.quotas.list() == []
