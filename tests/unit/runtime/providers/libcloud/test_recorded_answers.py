# SPDX-License-Identifier: Apache-2.0
"""Every driver reads answers that libcloud recorded: its instances are as expected, and no broken answer makes one look
gone."""

from __future__ import annotations

import json

import pytest

from ccm.cloud import CloudError, NotFound, RateLimited, Transient, Unauthorized
from ccm.gateway.instance_snapshot import instance_problem
from ccm.providers.libcloud import drivers, instance_rules
from ccm.providers.libcloud.drivers import DRIVERS
from ccm.providers.libcloud.instance_rules import kind
from tests.clouds.libcloud import recorded_answers

#: Driver -> the machines in its recorded answers: providerID, type, zone, region, and number of IP addresses.
EXPECTED = {
    "azure": [
        (f"{recorded_answers.AZURE}/test-node-1", "Standard_A1", "", "eastus", 1),
        (f"{recorded_answers.AZURE}/test-node-2", "Standard_A1", "", "eastus", 1),
    ],
    "cloudscale": [("cloudscale://47cec963-fcd2-482f-bdb6-24461b2d47b1", "flex-4", "", "", 2)],
    "cloudstack": [
        ("external-cloudstack://2600", "Compute-Micro-PRD", "Sydney", "", 1),
        ("external-cloudstack://2601", "Compute-Micro-PRD", "Sydney", "", 1),
    ],
    "digitalocean": [("digitalocean://3164444", "s-1vcpu-1gb", "", "sfo3", 2)],
    "exoscale": [
        ("exoscale://2600", "Compute-Micro-PRD", "Sydney", "", 1),
        ("exoscale://2601", "Compute-Micro-PRD", "Sydney", "", 1),
    ],
    "linode": [
        ("linode://22344420", "g6-nanode-1", "", "eu-west", 2),
        ("linode://22344421", "g6-nanode-1", "", "eu-west", 1),
    ],
    "openstack": [("openstack:///12065", "", "", "", 10), ("openstack:///12064", "", "", "", 4)],
    "scaleway": [
        ("scaleway://instance/fr-par-1/741db378", "", "fr-par-1", "fr-par", 0),
        ("scaleway://instance/fr-par-1/0e9f85af", "", "fr-par-1", "fr-par", 0),
    ],
    "gce": [
        (f"gce://project_name/{zone}/{name}", "n1-standard-1", zone, zone[:-2], 2)
        for zone, name in (
            ("europe-west1-a", "libcloud-demo-europe-multiple-nodes-000"),
            ("europe-west1-a", "libcloud-demo-europe-persist-node"),
            ("europe-west1-a", "libcloud-demo-europe-np-node"),
            ("us-central1-a", "node-name"),
            ("us-central2-a", "libcloud-demo-persist-node"),
            ("us-central2-a", "libcloud-demo-np-node"),
            ("us-central2-a", "libcloud-demo-multiple-nodes-000"),
            ("us-central2-a", "libcloud-demo-multiple-nodes-001"),
        )
    ],
    "vultr": [
        ("vultr://123", "vc2-1c-2gb", "", "fra", 1),
        ("vultr://bccc8184-ae8b-49d9-ab7c-2dd5c507a4fd", "vc2-1c-2gb", "", "fra", 1),
        ("vultr://75c17a64-e703-4d3e-9969-70d39b6db3bf", "vc2-1c-1gb", "", "lhr", 2),
    ],
    "upcloud": [("upcloud:////00f8c525-7e62-4108-8115-3958df5b43dc", "1xCPU-1GB", "fi-hel1", "fi-hel1", 3)],
}


def read(name, change=lambda response: response):
    """Return the instances of a listing whose answers `change` modified, and what was unreachable."""
    settings, listing = recorded_answers.listing(name, change)
    found = instance_rules.instances(settings.driver, listing, settings.arguments, ())
    return found, instance_rules.unreachable(settings.driver, listing.answers)


def changed(status=200, text="", **headers):
    """Return a function that changes an answer to this status, text and headers."""

    def change(response):
        response.status_code, response._content = status, text.encode()
        response.headers.update(headers)
        return response

    return change


class At:
    """Changes the answer to request `number`, counted from 0. `where`: collects the URL of each request."""

    def __init__(self, number, change):
        self.number, self.change, self.where = number, change, []

    def __call__(self, response):
        self.where.append(response.url)
        return self.change(response) if len(self.where) == self.number + 1 else response


def test_every_driver_has_recorded_answers():
    assert recorded_answers.RECORDINGS.keys() == DRIVERS.keys()
    assert len(DRIVERS) >= 10


@pytest.mark.parametrize("name", DRIVERS)
def test_the_machines_of_the_recorded_answers(name):
    rows = [
        (each.provider_id, each.type, each.zone, each.region, sum("IP" in at.type.value for at in each.addresses))
        for each in recorded_answers.instances(name)
    ]
    assert rows == EXPECTED[name]


@pytest.mark.parametrize("name", DRIVERS)
def test_instances_fit_the_contract_and_are_the_drivers_own(name):
    driver = DRIVERS[name]
    for each in recorded_answers.instances(name):
        assert instance_problem(each) == ""
        assert drivers.owned(driver, each.provider_id)
        assert driver.canonical(each.provider_id) == each.provider_id
        others = [other for other, facts in DRIVERS.items() if drivers.owned(facts, each.provider_id)]
        assert others == [name]


FAULTS = {
    "server error": changed(503, '{"message": "later"}'),
    "proxy page": changed(404, "<html>no such page</html>"),
    "not found": changed(404, '{"message": "not found"}'),
    "web page": changed(200, "<html>sign in</html>"),
    "nothing": changed(200, ""),
    "other answer": changed(200, '{"other": 1}'),
}


def requests_of(name):
    """Return the indices of the requests that a listing takes."""
    seen = At(-1, None)
    read(name, seen)
    return range(len(seen.where))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", DRIVERS)
def test_no_broken_answer_makes_a_machine_look_gone(name, fault):
    whole = {each.provider_id for each in recorded_answers.instances(name)}
    for number in requests_of(name):
        try:
            found, unreachable = read(name, At(number, FAULTS[fault]))
        except CloudError as error:
            assert not isinstance(error, NotFound)
            continue
        assert unreachable or {each.provider_id for each in found} == whole, f"request {number}"


@pytest.mark.parametrize("name", DRIVERS)
def test_a_listing_that_lost_a_row_after_the_driver_read_it_is_refused(name):
    settings, listing = recorded_answers.listing(name)
    shorter = instance_rules.Listing(listing.zone, listing.machines[1:], listing.answers)
    with pytest.raises(Transient, match=r"the listing has \d+ of \d+ machines"):
        instance_rules.instances(settings.driver, shorter, settings.arguments, ())


@pytest.mark.parametrize("name", DRIVERS)
def test_a_state_that_nobody_knows_is_a_machine_that_exists(name):
    settings, listing = recorded_answers.listing(name)
    odd = tuple(
        instance_rules.Machine(each.id, each.name, "no such state", each.public, each.private)
        for each in listing.machines
    )
    found = instance_rules.instances(
        settings.driver, instance_rules.Listing(listing.zone, odd, listing.answers), settings.arguments, ()
    )
    assert len(found) == len(odd)


@pytest.mark.parametrize("name", [name for name in DRIVERS if name not in ("azure", "openstack")])
def test_a_state_that_is_new_to_the_driver_fails_no_listing(name):
    """The test leaves out Azure, whose power states are in other answers, and OpenStack, whose driver accepts unknown
    states."""
    words = {"gce": '"RUNNING"', "cloudstack": '"Running"', "exoscale": '"Running"', "upcloud": '"started"'}
    word = words.get(name, '"active"' if name in ("digitalocean", "vultr") else '"running"')

    def change(response):
        response._content = response.text.replace(word, '"no-such-state"').encode()
        return response

    found, _ = read(name, change)
    assert len(found) == len(recorded_answers.instances(name))


@pytest.mark.parametrize("name", DRIVERS)
def test_refused_credentials_and_limits_have_their_types(name):
    last = len(requests_of(name)) - 1
    listing = next(number for number in range(last + 1) if _is_listing(name, number))
    with pytest.raises(Unauthorized):
        read(name, At(listing, changed(401, '{"message": "no"}')))
    with pytest.raises(RateLimited) as caught:
        read(name, At(listing, changed(429, '{"message": "slow"}', **{"Retry-After": "7"})))
    assert caught.value.retry_after == 7


def _is_listing(name, number):
    _, listing = recorded_answers.listing(name)
    rows = kind(DRIVERS[name], listing.answers[number].where)
    return rows is not None and not rows.details


def test_a_zone_of_gce_that_cannot_be_read_makes_the_listing_partial():
    def change(response):
        if "aggregated/instances" in response.url:
            content = json.loads(response.text)
            content["items"]["zones/us-east9-z"] = {"warning": {"code": "UNREACHABLE", "message": "gone"}}
            response._content = json.dumps(content).encode()
        return response

    found, unreachable = read("gce", change)
    assert len(found) == 8
    assert "zones/us-east9-z: UNREACHABLE" in unreachable
