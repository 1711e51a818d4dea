# SPDX-License-Identifier: Apache-2.0
"""Instances from made-up answers: addresses in order, states, labels, and incomplete listings."""

import dataclasses

import pytest

from ccm.cloud import InstanceState, Transient
from ccm.providers.libcloud.drivers import ASKED, DRIVERS, Driver, Rows
from ccm.providers.libcloud.instance_rules import (
    Answer,
    Listing,
    Machine,
    instances,
    kind,
    label_value,
    rows_in,
    unreachable,
)

DRIVER = Driver(
    cloud="X",
    library_class=("x", "X"),
    arguments={},
    rows=(
        Rows(r"/machines(\?|$)", ("machines",), total=("total",)),
        Rows(r"/machines/\w+$", ("machine",), details=True),
    ),
    id_form=r"x://\d+",
    provider_id=lambda row, settings: f"x://{row['id']}",
    controller="x-ccm",
    zone=lambda row: row.get("zone", ""),
    gone=frozenset({"terminated"}),
)
ONE, TWO = (
    Machine("1", "one", "running", ("9.9.9.9",), ("10.0.0.1",)),
    Machine("2", "two", "stopped", (), ("10.0.0.2",)),
)


def answer(*rows, total=None, where="/machines", **others):
    return Answer(where, 200, {}, {"machines": list(rows), "total": len(rows) if total is None else total, **others})


def read(machines, *answers, driver=DRIVER, without=()):
    return instances(driver, Listing("", tuple(machines), answers), {}, without)


def test_instances():
    one, two = read([ONE, TWO], answer({"id": 1, "zone": "z 1"}, {"id": 2}))
    assert (one.provider_id, one.name, one.zone, one.state) == ("x://1", "one", "z-1", InstanceState.RUNNING)
    assert [(each.type.value, each.address) for each in one.addresses] == [
        ("Hostname", "one"),
        ("InternalIP", "10.0.0.1"),
        ("ExternalIP", "9.9.9.9"),
    ]
    assert two.state is InstanceState.SHUTDOWN


def test_details_replace_rows():
    found = read([ONE], answer({"id": 1}), Answer("/machines/1", 200, {}, {"machine": {"id": 1, "zone": "z"}}))
    assert found[0].zone == "z"


@pytest.mark.parametrize(
    ("machines", "answers", "text"),
    [
        ([ONE], [answer({"id": 1}, {"id": 2})], "the listing has 1 of 2 machines"),
        ([ONE], [answer({"id": 1}, total=3)], "the listing has 1 of 3 machines"),
        ([ONE], [answer({"id": 2})], "the listing has 1 of 1 machines"),
        ([ONE, TWO], [answer({"id": 1})], "the driver lists a machine that is in no answer of the cloud"),
        ([ONE, ONE], [answer({"id": 1})], "the listing has a machine twice"),
        ([], [], "the driver sent none of the listing requests"),
        ([], [Answer("/machines", 500, {}, {})], "the driver sent none of the listing requests"),
        ([], [Answer("/machines", 200, {}, {"other": []})], "ValueError: there is no listing in it"),
        ([], [Answer("/machines", 200, {}, None)], "ValueError: there is no listing in it"),
        ([ONE], [Answer("/machines", 200, {}, {"machines": [{"id": 1}]})], "KeyError: 'total'"),
        ([dataclasses.replace(ONE, private=("x",))], [answer({"id": 1})], "ValueError"),
    ],
)
def test_a_listing_that_is_refused(machines, answers, text):
    with pytest.raises(Transient, match=text):
        read(machines, *answers)


def test_a_listing_with_more_pages_is_refused():
    rows = (Rows("/machines", ("machines",), more=lambda found: bool(found.get("next"))),)
    driver = dataclasses.replace(DRIVER, rows=rows)
    assert len(read([ONE], answer({"id": 1}), driver=driver)) == 1
    with pytest.raises(Transient, match="more pages than the driver read"):
        read([ONE], answer({"id": 1}, next="n"), driver=driver)


@pytest.mark.parametrize(("count", "whole"), [(99, True), (100, False), (101, True), (200, False)])
def test_without_a_total_a_full_page_is_refused(count, whole):
    machines = [Machine(str(each), f"m{each}", "running", (), ("10.0.0.1",)) for each in range(count)]
    rows = [{"id": str(each), "zonename": "z", "serviceofferingname": "s"} for each in range(count)]
    content = {"listvirtualmachinesresponse": {"virtualmachine": rows}}
    given = Answer("/client/api?command=listVirtualMachines", 200, {}, content)
    if whole:
        assert len(read(machines, given, driver=DRIVERS["cloudstack"])) == count
    else:
        with pytest.raises(Transient, match="reports no total"):
            read(machines, given, driver=DRIVERS["cloudstack"])


def test_a_header_with_the_total():
    rows = (Rows("/machines", ("machines",), total_header="x-total-count"),)
    driver = dataclasses.replace(DRIVER, rows=rows)
    with pytest.raises(Transient, match="1 of 2"):
        read([ONE], dataclasses.replace(answer({"id": 1}), headers={"x-total-count": "2"}), driver=driver)


def test_only_states_of_the_table_mean_gone():
    gone, odd = dataclasses.replace(ONE, state="terminated"), dataclasses.replace(TWO, state="archived")
    assert [each.name for each in read([gone, odd], answer({"id": 1}, {"id": 2}))] == ["two"]


def test_a_machine_without_addresses_is_incomplete():
    for public in ((), ("",), ("0.0.0.0",), ("::",)):
        found = read([dataclasses.replace(ONE, public=public, private=())], answer({"id": 1}))
        assert found[0].incomplete == "X reports no address of the machine yet"


def test_addresses_in_random_order_are_sorted():
    shuffled = dataclasses.replace(ONE, public=("9.9.9.10", "2001:db8::1", "9.9.9.9", "9.9.9.10"))
    found = read([shuffled], answer({"id": 1}), driver=dataclasses.replace(DRIVER, sort_addresses=True))
    assert [each.address for each in found[0].addresses][2:] == ["9.9.9.9", "9.9.9.10", "2001:db8::1"]


def test_no_error_has_a_secret():
    with pytest.raises(Transient) as caught:
        read([dataclasses.replace(ONE, public=("hush-hush",))], answer({"id": 1}), without=["hush-hush"])
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ""), ("Small Instance", "Small-Instance"), ("a" * 70, "a" * 63), ("(x)", "x"), ("é", ""), ("a_b.c", "a_b.c")],
)
def test_label_values(text, expected):
    assert label_value(text) == expected


def test_rows_behind_every_value():
    content = {"items": {"a": {"instances": [{"id": 1}]}, "b": {}, "c": {"instances": [{"id": 2}]}}}
    assert [row["id"] for row in rows_in(content, ("items", "*", "instances"))] == [1, 2]


def test_kind():
    assert kind(DRIVER, "/machines?page=2") is DRIVER.rows[0]
    assert kind(DRIVER, "/machines/7") is DRIVER.rows[1]
    assert kind(DRIVER, "/disks") is None


def test_unreachable_parts():
    items = {"zones/a": {"warning": {"code": "UNREACHABLE"}}, "zones/b": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
    assert unreachable(DRIVER, [Answer("/x", 200, {}, {"items": items})]) == "X: zones/a: UNREACHABLE"
    assert unreachable(DRIVER, [answer({"id": 1}), Answer("/y", 200)]) == ""


def test_the_zone_that_was_asked_is_in_the_row():
    row = {"id": "741db378", ASKED: "fr-par-2"}
    assert DRIVERS["scaleway"].provider_id(row, {}) == "scaleway://instance/fr-par-2/741db378"
    assert DRIVERS["scaleway"].zone({**row, "zone": "nl-ams-1"}) == "nl-ams-1"


@pytest.mark.parametrize(
    ("name", "aliases"),
    [("Worker-9", ("worker-9",)), ("worker-9", ()), ("WORKER.Example.ORG", ("worker.example.org",))],
)
def test_a_name_in_capitals_is_found_as_the_kubelet_registers(name, aliases):
    (found,) = read([dataclasses.replace(ONE, name=name)], answer({"id": 1}))
    assert (found.name, found.aliases) == (name, aliases)
