# SPDX-License-Identifier: Apache-2.0
"""Which Service owns a load balancer: by our mark, by the original's label, or by its name."""

from __future__ import annotations

import dataclasses

import pytest

from ccm.cloud import Conflict, Ingress
from ccm.providers.hetzner import load_balancer_owners as owners
from ccm.providers.hetzner import load_balancer_rules as rules

from .wants import row, spec, want


def marked(**changed: object) -> dict[str, str]:
    return owners.labels(None, dataclasses.replace(spec(), **changed), want(), "")


def test_the_label_of_the_original_is_kept_and_read() -> None:
    assert marked()["hcloud-ccm/service-uid"] == "1-2-3-4"
    assert owners.is_own(row(labels={owners.UID: "1-2-3-4"}), spec())
    assert not owners.is_own(row(labels={owners.UID: "other"}), spec())
    assert not owners.is_own(row(), spec())


def test_our_mark_counts_before_it() -> None:
    assert owners.is_own(row(labels=marked()), spec())
    assert not owners.is_own(row(labels=marked(cluster="other")), spec())
    assert not owners.is_own(row(labels=marked(uid="other") | {owners.UID: "1-2-3-4"}), spec())


def test_the_oldest_of_several_counts() -> None:
    rows = [row(id=number, labels=marked()) for number in (9, 8)] + [row(id=1)]
    assert [each["id"] for each in owners.own(rows, spec())] == [8, 9]
    assert owners.own([row()], spec()) == []


def test_labels_fit_into_the_cloud_and_those_of_others_stay() -> None:
    long = dataclasses.replace(spec(), cluster="c" * 200, namespace="n" * 63)
    found = owners.labels(row(labels={"team": "web", owners.TARGETS: "old"}), long, want(), "")
    assert found["team"] == "web" and owners.TARGETS not in found
    assert all(len(value) <= 63 for value in found.values())
    assert owners.labels(None, spec(), want(), "digest")[owners.TARGETS] == "digest"
    assert owners.without_marks(row(labels=found)) == {"team": "web"}


def test_a_fingerprint_is_what_was_written_and_the_targets_that_there_are() -> None:
    found = row(labels=marked())
    assert owners.fingerprint(found) == f"{want().digest}-{rules.digest_of_row(found)}"
    assert owners.fingerprint(row(labels=marked() | {owners.TARGETS: "x"})) == f"{want().digest}-x"
    assert owners.fingerprint(row()) == ""
    assert owners.fingerprint(row(labels=owners.labels(None, spec(), want(), "", whole=False))) == ""


def test_a_name_finds_one_that_nothing_marks() -> None:
    assert owners.adoptable([row()], spec(), want(), by_name=True) == row()
    assert owners.adoptable([row(name="other")], spec(), want(), by_name=True) is None
    with pytest.raises(Conflict, match="ADOPT_BY_NAME=true, or its label hcloud-ccm/service-uid to 1-2-3-4"):
        owners.adoptable([row()], spec(), want(), by_name=False)
    known = dataclasses.replace(spec(), ingress=(Ingress(ip="203.0.113.7"),))
    assert owners.adoptable([row()], known, want(), by_name=False) == row()


def test_one_of_somebody_else_is_a_conflict() -> None:
    with pytest.raises(Conflict, match="'a1234' \\(7\\) belongs to another Service"):
        owners.adoptable([row(labels={owners.UID: "other"})], spec(), want(), by_name=True)
    with pytest.raises(Conflict, match="belongs to cluster other"):
        owners.adoptable([row(labels=marked(cluster="other"))], spec(), want(), by_name=True)


def test_addresses_are_all_that_it_has() -> None:
    assert owners.addresses(row()) == ["203.0.113.7", "2001:db8::7", "10.0.1.2"]
    bare = {"enabled": True, "ipv4": {"ip": None}, "ipv6": {"ip": ""}}
    assert owners.addresses(row(public_net=bare, private_net=[])) == []


def test_one_read_finds_the_load_balancers_of_each_service() -> None:
    own, old, other = row(labels=marked()), row(labels={owners.UID: "1-2-3-4"}), row(labels={owners.UID: "another"})
    assert owners.Rows([own, old, other]).labelled("1-2-3-4") == (own, old)
    assert owners.Rows([own, old, other]).labelled("nobody") == ()
    for odd in ({}, {"labels": None}, "text"):
        with pytest.raises(ValueError, match="load balancer 1 has no labels"):
            owners.Rows([own, odd])
