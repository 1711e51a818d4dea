# SPDX-License-Identifier: Apache-2.0
"""A listing that says which part of the cloud is unreachable, and instances with several names."""

import logging

import pytest
from prometheus_client import REGISTRY

from ccm.cloud import Address, AddressType, Conflict, Instance, InstanceRef, NotFound, Page, Transient
from ccm.gateway.gateway import Gateway, ProviderBug
from ccm.gateway.instance_snapshot import Snapshot, as_asked, instance_problem

from .fake import FakeCloud, FakeInstances, machine
from .virtual import in_virtual_time, now

N0, N1 = machine("n0"), machine("n1")
PART = "vCenter b does not answer"


def directory(fake):
    return Gateway(FakeCloud(fake), clock=now).instances


def partial(*pages):
    fake = FakeInstances()
    fake.pages = dict(pages)
    return fake


@in_virtual_time
async def test_what_is_listed_is_known_and_what_is_not_is_unknown():
    found = await directory(partial((None, Page([N0], unreachable=PART)))).list(not_before=now())
    assert found.find(InstanceRef("n0", "fake://n0")) == found.find(InstanceRef("n0")) == N0
    for ref in (InstanceRef("n1", "fake://n1"), InstanceRef("n1")):
        with pytest.raises(Transient, match=PART):
            found.find(ref)


@in_virtual_time
async def test_one_page_that_says_so_is_enough():
    fake = partial((None, Page([N0], "b", unreachable=PART)), ("b", Page([N1])))
    found = await directory(fake).list(not_before=now())
    assert (found.unreachable, list(found.by_id)) == (PART, ["fake://n0", "fake://n1"])
    with pytest.raises(Transient):
        found.find(InstanceRef("n2", "fake://n2"))


@in_virtual_time
async def test_a_total_that_is_not_reached_is_explained():
    assert (await directory(partial((None, Page([N0], total=9, unreachable=PART)))).list(not_before=now())).unreachable
    with pytest.raises(Transient, match="1 of 9"):
        await directory(partial((None, Page([N0], total=9)))).list(not_before=now())


@in_virtual_time
async def test_it_proves_no_absence_and_a_whole_one_does_again():
    fake = partial((None, Page([N0], unreachable=PART)))
    asked = directory(fake)
    await asked.list(not_before=now())
    assert asked.listed_at == float("-inf")
    fake.pages = {None: Page([N0])}
    whole = await asked.list(not_before=now() + 1)
    assert asked.listed_at == whole.began
    with pytest.raises(NotFound):
        whole.find(InstanceRef("n1"))


@in_virtual_time
async def test_it_is_logged_once_for_each_cause_and_is_a_metric(caplog):
    caplog.set_level(logging.INFO, "ccm")
    fake = partial((None, Page([N0], unreachable=PART)))
    asked = directory(fake)
    for _ in range(3):
        await asked.list(not_before=now() + 1)
    assert REGISTRY.get_sample_value("ccm_instances_listing_partial") == 1.0
    fake.pages = {None: Page([N0])}
    for _ in range(2):
        await asked.list(not_before=now() + 1)
    assert REGISTRY.get_sample_value("ccm_instances_listing_partial") == 0.0
    assert [PART in message for message in caplog.messages] == [True, False]


@in_virtual_time
async def test_the_listing_of_a_refused_cloud_is_not_the_one_that_is_reported(caplog):
    """A listing that only compares a cloud, before it replaces the current one, changes no metric and logs nothing."""
    gate = Gateway(FakeCloud(partial((None, Page([N0])))), clock=now)
    await gate.instances.list(not_before=now())
    refused = FakeCloud(partial((None, Page([N1], unreachable=PART))))

    async def refusal(listing):
        assert list((await listing()).by_id) == ["fake://n1"]
        return "it overlaps"

    with pytest.raises(Conflict, match="it overlaps"):
        await gate.replace(refused, refusal)
    assert gate.cloud is not refused and list(gate.instances.latest.by_id) == ["fake://n0"]
    assert REGISTRY.get_sample_value("ccm_instances_listing_partial") == 0.0
    assert not any(PART in message for message in caplog.messages)


@in_virtual_time
async def test_what_is_no_text_is_a_bug_of_the_provider():
    with pytest.raises(ProviderBug, match="unreachable"):
        await directory(partial((None, Page([N0], unreachable=["b"])))).list(not_before=now())


# --- names -----------------------------------------------------------------------------------------------------------

AWS = Instance("fake://1", "i-0abc", aliases=("ip-10-0-0-1.ec2.internal",))


def test_an_alias_finds_its_instance():
    found = Snapshot.of([AWS, N1], 1.0, 1)
    assert found.find(InstanceRef("ip-10-0-0-1.ec2.internal")) == found.find(InstanceRef("i-0abc")) == AWS
    with pytest.raises(NotFound):
        found.find(InstanceRef("ip-10-0-0-1"))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(machine("ip-10-0-0-1.ec2.internal"), id="a name that is another's alias"),
        pytest.param(Instance("fake://2", "n2", aliases=("ip-10-0-0-1.ec2.internal",)), id="one alias twice"),
    ],
)
def test_a_name_that_two_instances_have_is_a_conflict(other):
    with pytest.raises(Conflict):
        Snapshot.of([AWS, other], 1.0, 1).find(InstanceRef("ip-10-0-0-1.ec2.internal"))


def test_an_alias_that_repeats_the_name_is_no_second_instance():
    one = Instance("fake://1", "n1", aliases=("n1", "n1"))
    assert one.names == ("n1",)
    assert Snapshot.of([one], 1.0, 1).find(InstanceRef("n1")) == one


@in_virtual_time
async def test_what_a_single_read_found_is_known_by_its_aliases():
    fake = FakeInstances(AWS)
    asked = directory(fake)
    await asked.get(InstanceRef("i-0abc"))
    assert asked.named("ip-10-0-0-1.ec2.internal") == asked.named("i-0abc") == [AWS]
    assert asked.named("other") == []


@pytest.mark.parametrize("field", ["aliases", "warnings"])
@pytest.mark.parametrize("value", ["text", ["a"], (1,), ("",), None])
def test_fields_of_another_shape_make_it_unusable(field, value):
    assert f"{field}=" in instance_problem(Instance("fake://1", "n1", **{field: value}))
    assert instance_problem(Instance("fake://1", "n1", **{field: ("a", "b")})) == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("addresses", (Address(AddressType.INTERNAL_IP, "10.0.0.1"), "10.0.0.2")),
        ("labels", {"zone": "a", "rack": None}),
        ("aliases", ("a", "")),
        ("warnings", ("a", 1)),
    ],
)
def test_one_wrong_entry_among_good_ones_makes_it_unusable(field, value):
    assert f"{field}=" in instance_problem(Instance("fake://1", "n1", **{field: value}))


def test_a_problem_is_told_in_500_characters():
    assert len(instance_problem(Instance("fake://1", "n" * 1000, zone=3))) == 500


def test_an_answer_about_another_instance_keeps_its_own_id():
    asked = InstanceRef("n0", "old://n0")
    assert as_asked(N0, asked, "fake://n0").provider_id == "old://n0"
    assert as_asked(N1, asked, "fake://n0") == N1
    assert as_asked(N1, InstanceRef("n0", "fake://n0"), "fake://n0") == N1


def test_a_system_uuid_chooses_among_namesakes_or_finds_a_machine_of_another_name():
    one = Instance("fake://1", "n", system_uuids=("aa", "ab"))
    two = Instance("fake://2", "n", system_uuids=("bb",))
    other = Instance("fake://3", "m", system_uuids=("cc",))
    found = Snapshot.of([one, two, other], 1.0, 1)
    assert found.find(InstanceRef("n", system_uuid="AB")) == one
    assert found.find(InstanceRef("unknown", system_uuid="cc")) == other
    assert found.find(InstanceRef("m", system_uuid="aa")) == other
    with pytest.raises(Conflict):
        found.find(InstanceRef("n", system_uuid="cc"))
    for ref in (InstanceRef("unknown", system_uuid="dd"), InstanceRef("unknown"), InstanceRef("m", "fake://9", "cc")):
        with pytest.raises(NotFound):
            found.find(ref)
