# SPDX-License-Identifier: Apache-2.0
"""Which of several clouds owns a Node."""

import itertools

import msgspec
import pytest

from ccm.cloud import Conflict, Instance, NotFound, RateLimited, Transient, Unauthorized
from ccm.controllers.nodes import ownership_rules as rules
from ccm.controllers.nodes.ownership_rules import CloudAnswer, Declarations, Owned, Undecided, Unowned
from ccm.engine.objects import Node

UUID = "4c4c4544-0042-4b10-8034-b7c04f4a3231"
CLOUDS = Declarations(("north", "south", "metal"), {"metal": ["bm-*"]})
HAS = CloudAnswer(Instance("x://1", "n"))
PROVES = CloudAnswer(Instance("x://1", "n", system_uuids=(UUID,)))
LACKS = CloudAnswer(NotFound("no"))
DOWN = CloudAnswer(Transient("503"))
LISTED_WITHOUT = CloudAnswer(Transient("503"), was_listed_without=True)
SEVERAL = CloudAnswer(Conflict("2 instances are named n"))


def node(name="n", provider_id="", cloud=""):
    document = {
        "metadata": {"name": name, "labels": {rules.LABEL: cloud} if cloud else {}},
        "spec": {"providerID": provider_id},
        "status": {"nodeInfo": {"systemUUID": UUID.upper()}},
    }
    return msgspec.convert(document, Node)


def owner(asked, *answers):
    return rules.owner(asked, dict(zip(CLOUDS.clouds, answers, strict=False)), CLOUDS)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((HAS, LACKS, LACKS), Owned("north")),
        ((LACKS, LACKS, HAS), Owned("metal")),
        ((HAS, LISTED_WITHOUT, LACKS), Owned("north")),
        ((PROVES, DOWN, LACKS), Owned("north")),
        ((PROVES, HAS, DOWN), Owned("north")),
        ((SEVERAL, LACKS, LACKS), Owned("north")),
        ((HAS, DOWN, LACKS), ("south",)),
        ((LACKS, DOWN, DOWN), ("south", "metal")),
        ((LACKS, LISTED_WITHOUT, DOWN), ("metal",)),
        ((HAS, HAS, LACKS), "SeveralOwners"),
        ((HAS, HAS, DOWN), "SeveralOwners"),
        ((PROVES, PROVES, LACKS), "SeveralOwners"),
        ((SEVERAL, HAS, LACKS), "SeveralOwners"),
        ((LACKS, LACKS, LACKS), "InstanceNotFound"),
        ((LISTED_WITHOUT, LACKS, LACKS), "InstanceNotFound"),
    ],
)
def test_the_clouds_own_answers(answers, expected):
    found = owner(node(), *answers)
    match found:
        case Undecided():
            assert found.silent == expected and all(cloud in found.message for cloud in expected)
        case Unowned():
            assert found.reason == expected
        case Owned():
            assert found == expected


@pytest.mark.parametrize("error", [Transient("503"), Unauthorized("401"), RateLimited("429")])
def test_a_cloud_that_does_not_answer_has_said_nothing(error):
    assert isinstance(owner(node(), HAS, CloudAnswer(error), LACKS), Undecided)


@pytest.mark.parametrize(
    ("declared", "answers", "expected"),
    [
        ("north", (HAS, HAS, LACKS), Owned("north")),
        ("south", (HAS, HAS, LACKS), Owned("south")),
        ("north", (HAS, DOWN, DOWN), Owned("north")),
        ("south", (HAS, DOWN, LACKS), Undecided),
        ("south", (HAS, LACKS, LACKS), "OwnersContradict"),
        ("south", (PROVES, HAS, LACKS), "OwnersContradict"),
        ("south", (LACKS, LACKS, DOWN), "InstanceNotFound"),
    ],
)
def test_a_declaration_chooses_among_the_clouds_that_have_the_machine(declared, answers, expected):
    found = owner(node(cloud=declared), *answers)
    if isinstance(expected, str):
        assert isinstance(found, Unowned) and found.reason == expected and declared in found.message
    else:
        assert found == expected or isinstance(found, expected)


def test_a_pattern_of_names_declares_too_and_the_label_is_stronger():
    assert owner(node("bm-7"), HAS, LACKS, HAS) == Owned("metal")
    assert owner(node("bm-7", cloud="north"), HAS, LACKS, HAS) == Owned("north")
    both = Declarations(("north", "south"), {"north": ["a-*"], "south": ["*-b"]})
    answers = {"north": HAS, "south": HAS}
    assert isinstance(rules.owner(node("a-b"), answers, both), Unowned), "never by chance"


def test_messages_name_everybody_who_was_asked_or_claims():
    nobody, several = owner(node(), LACKS, LACKS, LACKS), owner(node(), HAS, LACKS, HAS)
    assert "asked: north and south and metal" in nobody.message
    remembered = owner(node(), LISTED_WITHOUT, LACKS, LACKS)
    assert "asked: north (does not answer; its last listing has no such machine) and south" in remembered.message
    assert "north and metal each have" in several.message and rules.LABEL in several.message


@pytest.mark.parametrize("declared", ["", "north", "metal"])
def test_nobody_gets_a_machine_that_his_cloud_does_not_have_and_the_order_decides_nothing(declared):
    for answers in itertools.product([HAS, PROVES, LACKS, DOWN, LISTED_WITHOUT, SEVERAL], repeat=3):
        named = dict(zip(CLOUDS.clouds, answers, strict=True))
        asked = node(cloud=declared)
        found = rules.owner(asked, named, CLOUDS)
        backwards = rules.owner(asked, dict(reversed(named.items())), CLOUDS)
        assert type(found) is type(backwards)
        if isinstance(found, Owned):
            assert found == backwards and named[found.cloud].claims
        if isinstance(found, Undecided):
            assert set(found.silent) == set(backwards.silent) and all(named[cloud].is_silent for cloud in found.silent)


@pytest.mark.parametrize(
    ("asked", "owners", "expected"),
    [
        (node(), (), ("north", "south", "metal")),
        (node(provider_id="x://1"), ("south",), ("south",)),
        (node(provider_id="x://1"), ("south", "north"), ("north", "south")),
        (node(provider_id="y://1"), (), "ForeignProviderID"),
        (node(cloud="vendor"), (), "OtherController"),
        (node(provider_id="x://1", cloud="vendor"), ("south",), "OtherController"),
        (node(provider_id="x://1", cloud="north"), ("south",), "OwnersContradict"),
        (node(provider_id="x://1", cloud="south"), ("south",), ("south",)),
    ],
)
def test_who_is_asked(asked, owners, expected):
    found = rules.candidates(asked, owners, CLOUDS)
    assert (found.reason if isinstance(found, Unowned) else found) == expected


@pytest.mark.parametrize(
    ("kept", "owners", "expected"),
    [
        (node(provider_id="x://1"), ["north"], "north"),
        (node(provider_id="x://1"), ["north", "south"], None),
        (node(provider_id="x://1"), [], None),
        (node(), ["north"], None),
        (node(provider_id="x://1", cloud="north"), ["north"], "north"),
        (node(provider_id="x://1", cloud="south"), ["north"], None),
        (node(provider_id="x://1", cloud="vendor"), ["north"], None),
    ],
)
def test_only_the_one_owner_of_a_provider_id_may_update_and_delete_its_node(kept, owners, expected):
    assert rules.keeper(kept, owners, CLOUDS) == expected


def test_declarations_that_cannot_be_meant():
    assert CLOUDS.problems() == []
    wrong = Declarations(("north", "north", "south"), {"vendor": ["v-*"], "north": ["a-*"], "south": ["a-*"]})
    scope, twice, both = wrong.problems()
    assert "'vendor', which is not a cloud" in scope and "'north' is named more than once" in twice
    assert "'a-*' of Node names is declared for both 'north' and 'south'" in both


@pytest.mark.parametrize(
    ("ours", "theirs", "is_one"),
    [
        (("sim://north/i-1", "web"), ("metro://south/i-1", "web"), True),
        (("openstack:///5A", "web"), ("libcloud://5a", "web"), True),
        (("hcloud://4711", "web"), ("digitalocean://4711", "db"), False),
        (("gce://p/z/web", "web"), ("static://cellar/web", "web"), False),
        (("vsphere://1", "web", "u-1"), ("static://cellar/db", "db", "u-1"), True),
        (("vsphere://1", "web", "u-1"), ("vsphere://2", "web", "u-2"), False),
    ],
    ids=["id-and-name", "case", "same-number", "names-as-ids", "uuid", "other-uuid"],
)
def test_what_shows_that_two_clouds_share_machines(ours, theirs, is_one):
    first, second = (Instance(id_, name, system_uuids=tuple(uuids)) for id_, name, *uuids in (ours, theirs))
    others = [Instance("x://9", "nine")]
    assert rules.same_machine([*others, first], [second]) == ((first, second) if is_one else None)
