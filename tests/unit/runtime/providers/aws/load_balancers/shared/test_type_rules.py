# SPDX-License-Identifier: Apache-2.0
"""Which type of load balancer a Service asks for, and which one it has."""

from __future__ import annotations

import pytest

from ccm.cloud import ImplementedElsewhere, Ingress
from ccm.providers.aws.annotations import PREFIX
from ccm.providers.aws.load_balancers.shared import type_rules as types
from ccm.providers.aws.settings_sections import CLASSIC, NETWORK

from ...rows import NAME, spec


@pytest.mark.parametrize(
    ("text", "default", "type_"),
    [
        (None, CLASSIC, CLASSIC),
        (None, NETWORK, NETWORK),
        ("nlb", CLASSIC, NETWORK),
        ("classic", NETWORK, CLASSIC),
        ("", NETWORK, CLASSIC),
        ("clb", NETWORK, CLASSIC),
        ("NLB", CLASSIC, CLASSIC),
    ],
)
def test_the_type_of_a_service(text, default, type_):
    assert types.type_of(spec(annotations={"type": text}), default) == type_


@pytest.mark.parametrize("type_", ["external", "nlb-ip"])
def test_another_controllers_services_are_left_alone(type_):
    with pytest.raises(ImplementedElsewhere, match="AWS Load Balancer Controller"):
        types.type_of(spec(annotations={"type": type_}), CLASSIC)


@pytest.mark.parametrize(
    ("host", "type_"),
    [
        ("", ""),
        (f"{NAME}-1234567890.eu-central-1.elb.amazonaws.com", CLASSIC),
        (f"internal-{NAME}-1234567890.eu-central-1.elb.amazonaws.com", CLASSIC),
        (f"{NAME}-1234567890.cn-north-1.elb.amazonaws.com.cn", CLASSIC),
        (f"{NAME}-0a1.elb.eu-central-1.amazonaws.com", NETWORK),
        (f"{NAME}-0a1.elb.cn-north-1.amazonaws.com.cn", NETWORK),
    ],
)
def test_the_type_that_a_service_has(host, type_):
    assert types.had(spec(ingress=(Ingress(hostname=host),) if host else ())) == type_


def test_a_change_of_the_type_says_what_to_do():
    assert types.never_changes(NAME, CLASSIC, NETWORK) == (
        f"the Service has the Classic Load Balancer {NAME}, and asks for a Network Load Balancer: the type never "
        f"changes. Set the annotation {PREFIX}type to classic, or create another Service, move the clients, and delete "
        "this one"
    )


@pytest.mark.parametrize(("text", "count"), [(None, 0), ("", 0), ("classic", 0), ("nlb", 0), ("clb", 1), ("NLB", 1)])
def test_a_text_that_is_no_type_is_reported(text, count):
    found = types.warnings(spec(annotations={"type": text}))
    assert len(found) == count and all(repr(text) in each for each in found)
