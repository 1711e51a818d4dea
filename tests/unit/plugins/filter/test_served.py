# SPDX-License-Identifier: Apache-2.0
"""The clouds of ccm_runtime_clouds in the form that the plan uses."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.filter.migration_plan import served
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.clouds import Cloud

IDS = {"openstack": "openstack://", "static": "static://", "libcloud": None}
METAL = {"provider": "static", "nodes": ["bm-*"], "load_balancer_classes": ["metal"]}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ([], []),
        ([{"provider": "openstack"}], [Cloud("openstack", "openstack://", [], [], True)]),
        ([{"provider": "static", "default_load_balancers": False}], [Cloud("static", "static://", [], [])]),
        ([{"provider": "libcloud"}], [Cloud("libcloud", "", [], [], True)]),
        (
            [{"provider": "openstack"}, METAL],
            [Cloud("openstack", "openstack://", [], [], True), Cloud("static", "static://", ["bm-*"], ["metal"])],
        ),
        (
            [{"provider": "openstack"}, METAL | {"default_load_balancers": True}],
            [Cloud("openstack", "openstack://", [], []), Cloud("static", "static://", ["bm-*"], ["metal"], True)],
        ),
    ],
)
def test_the_first_cloud_serves_services_without_a_class_unless_another_is_marked(declared: Any, expected: Any) -> None:
    assert served(declared, IDS) == expected
