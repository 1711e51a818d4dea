# SPDX-License-Identifier: Apache-2.0
"""Which listings are believed: every rule at its boundary, with lying Nodes and with mistakes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.controllers.nodes.node_witness_rules import (
    RELATED,
    SETTLED,
    Absence,
    Claim,
    Evidence,
    Sightings,
    doubt,
    evidence,
)


def claim(name, *, ready=True, id_="", listed=True, replaced=False, instance=""):
    return Claim(f"uid-{name}", name, id_ or f"fake://{name}", ready, (instance or name) if listed else None, replaced)


def nodes(count, prefix="n", **fields):
    return [claim(f"{prefix}{number}", **fields) for number in range(count)]


def absent(seen=0, unseen=0, since=1000.0):
    return {f"seen-{n}": Absence(f"seen-{n}", since) for n in range(seen)} | {
        f"unseen-{n}": Absence(f"unseen-{n}") for n in range(unseen)
    }


def doubted(evidence, last_seen=None, cap=2, now=1e6):
    return doubt(evidence, last_seen=last_seen, cap=cap, now=now) is not None


# --- what counts as a witness ---------------------------------------------------------------------------------------


def test_ready_nodes_are_the_witnesses():
    told = evidence([*nodes(3), *nodes(2, "lost", listed=False), *nodes(9, "off", ready=False)], Sightings())
    assert (told.ready, told.listed, {each.node for each in told.absent.values()}) == (True, 3, {"lost0", "lost1"})


def test_without_ready_nodes_all_are_witnesses():
    told = evidence([*nodes(3, ready=False), *nodes(2, "lost", ready=False, listed=False)], Sightings())
    assert (told.ready, told.listed, len(told.absent)) == (False, 3, 2)


def test_a_ready_node_whose_machine_was_replaced_says_nothing():
    replaced = nodes(5, "again", listed=False, replaced=True)
    told = evidence([*nodes(2), *replaced], Sightings())
    assert (told.ready, told.listed, told.absent) == (True, 2, {})
    told = evidence([*replaced, claim("gone", ready=False, listed=False, replaced=True)], Sightings())
    assert (told.ready, told.listed, told.absent) == (True, 0, {})
    assert doubted(told)  # this may be another cluster's project, whose machines have the same names


@pytest.mark.parametrize(
    ("replaced", "missing", "listed", "believed"),
    [(6, 0, 0, True), (7, 0, 3, False), (4, 2, 2, False), (3, 2, 3, True)],
)
def test_without_ready_nodes_replaced_ones_count_for_the_cap_alone(replaced, missing, listed, believed):
    """`replaced`: Nodes whose machines were recreated under the same names."""
    told = evidence(
        [
            *nodes(replaced, "again", ready=False, listed=False, replaced=True),
            *nodes(missing, "lost", ready=False, listed=False),
            *nodes(listed, ready=False),
        ],
        Sightings(),
    )
    assert doubted(told, cap=6) is not believed


def test_instances_are_counted_however_many_nodes_claim_them():
    shared = [claim(f"liar-{number}", id_="fake://n0", instance="n0") for number in range(50)]
    lost = [claim(f"liar-{number}", id_="fake://none", listed=False) for number in range(50)]
    told = evidence([*nodes(3), *shared, *lost], Sightings())
    assert (told.listed, len(told.absent), told.known) == (3, 1, 3)


def test_known_are_the_instances_that_are_listed_or_were():
    """Invented Nodes do not raise the cap."""
    sightings = Sightings()
    sightings.learn([*nodes(3), *nodes(2, "lost", ready=False)], 10.0)
    now = [*nodes(3), *nodes(2, "lost", ready=False, listed=False), *nodes(90, "invented", ready=False, listed=False)]
    assert evidence(now, sightings).known == 5


# --- what was seen --------------------------------------------------------------------------------------------------


def test_when_an_instance_was_seen_and_since_when_it_is_missing():
    sightings, found, lost = Sightings(), claim("n0"), claim("n0", listed=False)
    sightings.learn([lost], 5.0)
    assert sightings.of("uid-n0", "fake://n0") is None  # never seen
    for began, each in ((10.0, found), (20.0, found), (30.0, lost), (40.0, lost)):
        sightings.learn([each], began)
    known = sightings.of("uid-n0", "fake://n0")
    assert (known.last, known.absent_since) == (20.0, 30.0)
    assert evidence([lost], sightings).absent["fake://n0"].since == 30.0
    sightings.learn([found], 50.0)
    known = sightings.of("uid-n0", "fake://n0")
    assert (known.last, known.absent_since) == (50.0, None)


def test_what_was_seen_is_of_one_node_and_one_provider_id():
    sightings = Sightings()
    sightings.learn([claim("n0"), claim("n1")], 10.0)
    assert sightings.of("uid-n0", "fake://other") is None and sightings.of("uid-other", "fake://n0") is None
    sightings.keep_only({"uid-n1"})
    assert sightings.of("uid-n0", "fake://n0") is None and sightings.of("uid-n1", "fake://n1")


def test_an_older_listing_does_not_undo_a_later_answer():
    """A listing from before Nodes got their providerIDs is compared again afterwards."""
    sightings, lost = Sightings(), claim("n0", listed=False)
    sightings.learn([claim("n0")], 10.0)
    sightings.learn([lost], 20.0)
    sightings.saw(claim("n0"), 30.0)
    for _ in range(2):
        sightings.learn([lost], 20.0)
        known = sightings.of("uid-n0", "fake://n0")
        assert (known.last, known.absent_since) == (30.0, None)


def test_a_later_answer_for_one_node_hides_nothing_of_the_others():
    sightings = Sightings()
    sightings.saw(claim("n0"), 30.0)
    sightings.learn([claim("n0", listed=False), claim("n1")], 20.0)
    assert sightings.of("uid-n0", "fake://n0").absent_since is None and sightings.of("uid-n1", "fake://n1").last == 20.0


def test_a_listing_of_the_same_moment_as_an_answer_counts():
    sightings = Sightings()
    sightings.saw(claim("n0"), 20.0)
    sightings.learn([claim("n0", listed=False)], 20.0)
    assert sightings.of("uid-n0", "fake://n0").absent_since == 20.0


@pytest.mark.threat("kubelet-cannot-delete-others")
@pytest.mark.parametrize(
    ("claims", "credited"),
    [
        pytest.param([("n0", "n0")], {"n0"}, id="its-name"),
        pytest.param([("node-0", "n0")], {"node-0"}, id="the-only-one"),
        pytest.param([("n0", "n0"), ("liar", "n0")], {"n0"}, id="a-liar-beside-the-real-one"),
        pytest.param([("liar-1", "n0"), ("liar-2", "n0")], set(), id="whose-it-is-cannot-be-told"),
    ],
)
def test_whose_instance_was_seen(claims, credited):
    sightings = Sightings()
    made = [claim(name, id_=f"fake://{instance}", instance=instance) for name, instance in claims]
    sightings.learn(made, 10.0)
    assert {each.name for each in made if sightings.of(each.uid, each.provider_id)} == credited


@pytest.mark.threat("kubelet-cannot-delete-others")
def test_a_liar_who_came_first_is_forgotten_when_the_real_node_comes():
    sightings, liar = Sightings(), claim("liar", id_="fake://n0", instance="n0")
    sightings.learn([liar], 10.0)
    sightings.learn([liar, claim("n0")], 20.0)
    assert sightings.of(liar.uid, liar.provider_id) is None and sightings.of("uid-n0", "fake://n0")


def test_an_answer_about_one_instance_is_for_the_node_of_its_name_or_one_known_already():
    sightings, liar = Sightings(), claim("liar", id_="fake://n0", instance="n0")
    for each in (liar, claim("n0")):
        sightings.saw(each, 10.0)
    assert sightings.of(liar.uid, liar.provider_id) is None and sightings.of("uid-n0", "fake://n0").last == 10.0
    named_otherwise = claim("node-1", id_="fake://n1", instance="n1")
    sightings.learn([named_otherwise], 20.0)
    sightings.saw(named_otherwise, 30.0)
    assert sightings.of("uid-node-1", "fake://n1").last == 30.0


# --- which listing is believed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "unseen", "believed"),
    [
        pytest.param(10, 0, True, id="all-listed"),
        pytest.param(10, 9, True, id="fewer-inventions-than-real-ones"),
        pytest.param(10, 10, False, id="half"),
        pytest.param(0, 10, False, id="wrong-project"),
        pytest.param(0, 1, False, id="one-node-and-it-is-not-there"),
        pytest.param(1, 0, True, id="one-is-enough"),
        pytest.param(1, 1, False, id="one-against-one"),
    ],
)
@pytest.mark.threat("kubelet-cannot-delete-others")
def test_the_listing_shows_more_ready_nodes_than_it_lacks(listed, unseen, believed):
    assert doubted(Evidence(True, listed, absent(unseen=unseen))) is not believed


@pytest.mark.parametrize(
    ("seen", "believed"), [(0, True), pytest.param(1, True, id="one-liar-stops-nobody"), (2, False), (9, False)]
)
@pytest.mark.threat("kubelet-cannot-delete-others")
def test_ready_nodes_whose_instances_vanished_stop_deletion(seen, believed):
    assert doubted(Evidence(True, 100, absent(seen=seen, unseen=5)), last_seen=990.0) is not believed


@pytest.mark.parametrize(
    ("last_seen", "believed"),
    [
        pytest.param(None, False, id="never-seen"),
        pytest.param(990.0, False, id="vanished-at-the-same-time"),
        pytest.param(1000.0 + RELATED - 1, False, id="soon-after"),
        pytest.param(1000.0 + RELATED, True, id="listed-long-after-they-were-not"),
    ],
)
def test_only_what_vanished_with_them_is_stopped(last_seen, believed):
    assert doubted(Evidence(True, 100, absent(seen=3)), last_seen=last_seen) is not believed


@pytest.mark.parametrize(
    ("listed", "missing", "cap", "believed"),
    [(10, 2, 2, True), (10, 3, 2, False), (2, 2, 5, False), (3, 2, 5, True), (0, 1, 2, False), (10, 9, 100, True)],
)
def test_without_ready_nodes_it_is_the_cap_and_the_majority(listed, missing, cap, believed):
    assert doubted(Evidence(False, listed, absent(seen=missing)), cap=cap) is not believed


def test_no_listing_is_not_believed():
    assert doubted(Evidence())


@pytest.mark.parametrize(
    ("evidence", "age", "lasting"),
    [
        pytest.param(Evidence(True, 20, absent(seen=3)), SETTLED - 1, False, id="a-scale-down-a-moment-ago"),
        pytest.param(Evidence(True, 20, absent(seen=3)), SETTLED, True, id="vanished-and-still-ready"),
        pytest.param(Evidence(True, 2, absent(seen=10)), 1.0, False, id="a-scale-down-to-two"),
        pytest.param(Evidence(True, 2, absent(seen=10)), SETTLED, True, id="a-wrong-project-since-a-while"),
        pytest.param(Evidence(True, 2, absent(seen=1, unseen=2)), 1.0, True, id="a-wrong-project-at-once"),
        pytest.param(Evidence(False, 20, absent(seen=10)), 1.0, True, id="no-ready-node"),
    ],
)
def test_what_goes_away_by_itself_is_no_alarm(evidence, age, lasting):
    assert doubt(evidence, last_seen=None, cap=2, now=1000.0 + age).lasting is lasting


def test_the_message_names_nodes_and_what_to_do():
    message = doubt(Evidence(True, 20, absent(seen=5)), last_seen=None, cap=2, now=1e6).message
    for part in ("5 Ready Nodes", "seen-0, seen-1, seen-2, ...", "--cloud-config", "by hand"):
        assert part in message
    message = doubt(Evidence(True, 2, absent(unseen=2)), last_seen=None, cap=2, now=1e6).message
    assert "(unseen-0, unseen-1)" in message and "--cloud-config" in message
    message = doubt(Evidence(True, 3, absent(unseen=3)), last_seen=None, cap=2, now=1e6).message
    assert "(unseen-0, unseen-1, unseen-2)" in message  # no ellipsis, because the list is complete
    message = doubt(Evidence(True, 0), last_seen=None, cap=2, now=1e6).message
    assert "lists no instance of any Ready Node" in message and "--cloud-config" in message


@given(st.integers(2, 50), st.data())
def test_fewer_inventions_than_real_nodes_never_stop_anything(real, data):
    """This holds whatever the invented Nodes claim, Ready or not."""
    sightings = Sightings()
    invented = [
        claim(f"liar-{number}", id_=f"fake://{target}", listed=target.startswith("n"), instance=target, ready=ready)
        for number in range(data.draw(st.integers(0, real - 2)))
        for target in [data.draw(st.sampled_from([f"none-{number}", "none", *(f"n{each}" for each in range(real))]))]
        for ready in [data.draw(st.booleans())]
    ]
    sightings.learn([*nodes(real), *invented], 10.0)
    # One Node's instance vanishes. Nodes that claim it stay as they are.
    gone = f"n{data.draw(st.integers(0, real - 1))}"
    after = [
        claim(
            each.name,
            id_=each.provider_id,
            ready=each.ready and each.name != gone,
            instance=each.listed_as or "x",
            listed=each.listed_as is not None and each.provider_id != f"fake://{gone}",
        )
        for each in [*nodes(real), *invented]
    ]
    sightings.learn(after, 700.0)
    told = evidence(after, sightings)
    assert not doubted(told, last_seen=10.0)
