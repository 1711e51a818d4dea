# SPDX-License-Identifier: Apache-2.0
"""Which load balancer is a Service's own, which ones it may share, and which parts of them are others'."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Conflict, Ingress, Invalid, LoadBalancerSpec
from ccm.providers.openstack.annotations import PREFIX
from ccm.providers.openstack.load_balancers import sharing_rules as rules
from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark, default_name, load_balancer_name
from ccm.providers.openstack.load_balancers.sharing_rules import Choice, Claim

NAME = load_balancer_name("prod", "shop", "web")
OTHER = load_balancer_name("prod", "shop", "other")


def spec(uid: str = "u1", **more: Any) -> LoadBalancerSpec:
    more = {"cluster": "prod", "namespace": "shop", "name": "web", "ports": ()} | more
    return LoadBalancerSpec(uid=uid, **more)


def mark(uid: str = "u1", **more: Any) -> str:
    return str(Mark.of(spec(uid, **more), "f"))


def row(id: str = "lb", name: str = NAME, *tags: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "tags": list(tags), "provisioning_status": "ACTIVE"} | more


def listed(rows: list[Any]) -> dict[str, Any]:
    return {row["id"]: row for row in rows}


# The Service's own load balancer.

OLDER = row("b", NAME, mark(), created_at="2026-01-01")
YOUNGER = row("a", NAME, mark(), created_at="2026-01-02")
SHARED = row("c", OTHER, mark(), mark("u2", name="other"), created_at="2026-01-03")
PLAIN = row("d")


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        pytest.param([], {}, Choice(), id="none"),
        pytest.param([YOUNGER, OLDER], {}, Choice(OLDER, True, (YOUNGER,)), id="the-oldest-of-two"),
        pytest.param([SHARED, PLAIN], {}, Choice(SHARED, False), id="a-mark-before-a-name"),
        pytest.param([PLAIN, row("e", OTHER)], {}, Choice(candidates=(PLAIN,)), id="a-name-is-to-be-proved"),
        pytest.param(
            [row("e", default_name("u1"))], {}, Choice(candidates=(row("e", default_name("u1")),)), id="old-name"
        ),
        pytest.param([row("e", NAME, mark("u2"))], {}, Choice(), id="a-namesakes"),
        pytest.param(
            [row("e", NAME, mark("u2", name="other"))],
            {},
            Choice(candidates=(row("e", NAME, mark("u2", name="other")),)),
            id="one-that-another-service-uses",
        ),
        pytest.param([row("e", provisioning_status="DELETED")], {}, Choice(), id="deleted"),
        pytest.param([row("e", provisioning_status="PENDING_DELETE")], {}, Choice(), id="going"),
        pytest.param([OLDER, PLAIN], {"named": "b"}, Choice(OLDER, True), id="named-and-marked"),
        pytest.param([YOUNGER, OLDER], {"named": "b"}, Choice(OLDER, True, (YOUNGER,)), id="named-and-made-twice"),
        pytest.param([SHARED], {"named": "c"}, Choice(SHARED, False), id="named-and-shared"),
        pytest.param([PLAIN], {"named": "d"}, Choice(candidates=(PLAIN,)), id="named-as-its-name-says"),
        pytest.param([OLDER], {"named": "gone"}, Choice(OLDER, True), id="named-and-gone"),
        pytest.param([OLDER, PLAIN], {"named": "d", "to_delete": True}, Choice(OLDER, True), id="only-the-mark-counts"),
        pytest.param([PLAIN], {"named": "gone", "to_delete": True}, Choice(candidates=(PLAIN,)), id="gone-already"),
        pytest.param([row("e", OTHER)], {"named": "e", "to_delete": True}, Choice(), id="not-its-own"),
    ],
)
def test_the_load_balancer_of_a_service(rows: Any, options: dict[str, Any], expected: Choice) -> None:
    assert rules.choose(listed(rows), spec(), "namespace", **options) == expected


def test_one_of_which_no_more_than_the_uid_is_known() -> None:
    unknown = LoadBalancerSpec("prod", "u1", "", "", ())
    assert rules.choose(listed([OLDER]), unknown, "never") == Choice(OLDER, True)
    assert rules.choose(listed([SHARED]), unknown, "never") == Choice(SHARED, False)
    assert rules.choose(listed([PLAIN]), unknown, "never") == Choice()


@pytest.mark.parametrize(
    ("rows", "named", "error", "words"),
    [
        ([OLDER, PLAIN], "d", Conflict, "already has load balancer b and cannot move to d"),
        ([YOUNGER, OLDER], "a", Conflict, "already has load balancer b and cannot move to a"),
        ([PLAIN], "gone", Invalid, "this project has no load balancer gone"),
        ([row("e", OTHER)], "e", Conflict, "this Service may not use load balancer e: .* is namespace"),
        ([row("e", OTHER, mark("u2"))], "e", Conflict, "is used by another Service named shop/web"),
    ],
)
def test_a_load_balancer_that_a_service_may_not_name(rows: Any, named: str, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        rules.choose(listed(rows), spec(), "namespace", named)


def test_what_cloud_provider_openstack_wrote_is_made_again_when_it_is_gone() -> None:
    written = spec(annotations={f"{PREFIX}load-balancer-address": "192.0.2.1"})
    assert rules.choose(listed([PLAIN]), written, "never", "gone") == Choice(candidates=(PLAIN,))


@pytest.mark.parametrize(("name", "owner"), [(NAME, True), (OTHER, False)])
def test_one_that_may_be_shared_is_named(name: str, owner: bool) -> None:
    there = row("e", name, mark("u2", name="other"))
    assert rules.choose(listed([there]), spec(), "namespace", "e") == Choice(there, owner)


def test_one_with_the_services_tag_is_to_be_proved() -> None:
    there = row("e", "by-hand", NAME)
    assert rules.choose(listed([there]), spec(), "namespace", "e") == Choice(candidates=(there,))


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (row("e", NAME, mark("u2")), True),
        (row("e", default_name("u1")), True),
        (row("e", load_balancer_name("before", "shop", "web")), True),
        (row("e", "by-hand_shop_web"), False),
        (row("e", OTHER), False),
        (row("e", None), False),
        (row("e", provisioning_status="DELETED"), False),
    ],
)
def test_one_that_may_be_the_services_keeps_a_second_one_away(there: Any, expected: bool) -> None:
    assert rules.may_be_ours([there], spec()) == ([there] if expected else [])
    assert rules.may_be_ours([there], LoadBalancerSpec("prod", "u1", "", "", ())) == []


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (row("e", NAME, mark(cluster="before")), True),
        (row("e", NAME, mark("u2", cluster="before")), False),
        (row("e", NAME, mark("u2"), mark(cluster="before")), True),
        (row("e", NAME, mark(cluster="before"), provisioning_status="PENDING_DELETE"), False),
        (row("e"), False),
    ],
)
def test_one_of_the_clusters_former_name(there: Any, expected: bool) -> None:
    assert rules.of_former_name(listed([there]), spec()) == (there if expected else None)


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ([mark("u2"), mark(cluster="before")], "has the tag of this Service, but of cluster 'before'. "),
        ([mark("u2"), mark("u3")], "but the tag of the Service with UID u2, u3. "),
        ([], "but neither its name nor its tag. "),
    ],
)
def test_why_no_second_one_is_made(tags: list[str], why: str) -> None:
    told = str(rules.refusal_of_a_second(row("e", NAME, *tags), spec()))
    assert told.startswith(f"load balancer e ({NAME}) ") and f"{why}This cluster is named 'prod'" in told


# Giving up a load balancer.


def test_what_a_claim_knows() -> None:
    known, unknown = (
        Claim.of(spec(), OLDER, owner=True),
        Claim.of(LoadBalancerSpec("prod", "u1", "", "", ()), SHARED, owner=False),
    )
    assert (known.name, unknown.name) == (NAME, "") and known.mark == unknown.mark == Mark.parse(mark())
    for claim in (known, unknown):
        assert claim.has(NAME) and not claim.has(OTHER) and not claim.has("")
    plain = Claim.of(spec(), PLAIN, owner=False)
    assert plain.has(NAME) and not plain.has(OTHER)
    assert not Claim("u1", "", None, owner=False).has("")


@pytest.mark.parametrize(
    ("claim", "tags", "used"),
    [
        (Claim("u1", NAME, None, owner=False), [], False),
        (Claim("u1", NAME, None, owner=False), [NAME], True),
        (Claim("u1", NAME, None, owner=True), [], True),
        (Claim("u1", NAME, Mark.parse(mark()), owner=False), [], True),
    ],
)
def test_whether_a_service_uses_a_load_balancer(claim: Claim, tags: list[str], used: bool) -> None:
    assert claim.is_used_by(row("e", OTHER, *tags)) is used


def test_the_tag_of_listeners_is_the_one_that_goes() -> None:
    there = row("e", OTHER, OTHER, mark(), NAME)
    assert Claim("u1", "", Mark.parse(mark()), owner=False).service_tag(there, [OTHER]) == NAME
    assert Claim("u1", "", None, owner=False).service_tag(there, [OTHER, NAME]) == ""
    assert Claim("u1", "its-name", None, owner=False).service_tag(there, [OTHER]) == "its-name"
    assert Claim("u1", "", None, owner=False).service_tag({"id": "e"}, []) == ""


@pytest.mark.parametrize(
    ("tags", "listeners", "others"),
    [
        ([NAME, mark()], [], ()),
        ([NAME, mark(), "anything"], [{"id": "l", "tags": [NAME]}, {"id": "m", "tags": []}, {"id": "n"}], ()),
        ([NAME, OTHER, mark()], [], (f"the tag {OTHER}",)),
        ([mark(), mark("u2", name="other")], [], (f"the tag {mark('u2', name='other')}",)),
        ([mark()], [{"id": "l", "tags": ["x", "y"]}, {"id": "m", "tags": ["x", NAME]}], ("listener l with the tag x",)),
    ],
)
def test_what_others_have_on_a_load_balancer(tags: list[str], listeners: list[Any], others: tuple[str, ...]) -> None:
    there = row("e", NAME, *tags)
    assert rules.used_beside(there, listeners, Claim.of(spec(), there, owner=True)) == others


@pytest.mark.parametrize(
    ("name", "made"), [(OTHER, True), (default_name("u1"), True), ("by-hand", False), (None, False)]
)
def test_who_made_it(name: Any, made: bool) -> None:
    assert rules.made_by_a_controller(row("e", name), spec()) is made


# Sharing.

NO_NAMESPACE = mark("u2", name="other").rpartition(":")[0]


@pytest.mark.parametrize(
    ("tag", "allowed"),
    [
        pytest.param("", {"project"}, id="nobodys"),
        pytest.param(OTHER, {"project"}, id="a-tag-that-any-cluster-writes"),
        pytest.param(mark("u2", name="other"), {"project", "cluster", "namespace"}, id="of-the-namespace"),
        pytest.param(mark("u2", namespace="bank"), {"project", "cluster"}, id="of-another-namespace"),
        pytest.param(NO_NAMESPACE, {"project", "cluster"}, id="of-before-namespaces"),
        pytest.param(mark("u2", cluster="test", name="other"), {"project"}, id="of-another-cluster"),
    ],
)
def test_which_load_balancers_may_be_shared(tag: str, allowed: set[str]) -> None:
    there = row("e", OTHER, *([tag] if tag else []))
    assert {sharing for sharing in rules.WHOSE if rules.may_share(there, spec(), sharing)} == allowed


def test_no_namespace_is_the_same_as_none() -> None:
    assert not rules.may_share(row("e", OTHER, NO_NAMESPACE), spec(namespace=""), "namespace")


@pytest.mark.parametrize(
    ("ingress", "written", "addresses", "sharings"),
    [
        ("192.0.2.1", "", ["192.0.2.1", "10.0.0.1"], {"never", "namespace", "cluster", "project"}),
        ("192.0.2.2", "", ["192.0.2.1"], set()),
        ("", "", [""], set()),
        ("", " 192.0.2.1 ", ["192.0.2.1"], {"project"}),
    ],
)
def test_an_address_proves_whose_it_is(ingress: str, written: str, addresses: list[str], sharings: set[str]) -> None:
    service = spec(ingress=(Ingress(ip=ingress),), annotations={f"{PREFIX}load-balancer-address": written})
    assert {sharing for sharing in rules.WHOSE if rules.proves(service, addresses, sharing)} == sharings
