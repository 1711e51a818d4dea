# SPDX-License-Identifier: Apache-2.0
"""A tolerated failure becomes a warning, in addition to the module's own warnings."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from ansible_collections.outoftree.ccm.plugins.action.ccm_component_config import ActionModule

FAILED = {"failed": True, "msg": "kubelet is not healthy\nits log", "warnings": ["The journal still lists the change"]}


def result_of(tolerant: bool, answer: dict[str, Any]) -> Any:
    task = mock.Mock(args={"component": "kubelet", "tolerant": tolerant}, async_val=0, check_mode=False)
    action = ActionModule(task, mock.Mock(), mock.Mock(check_mode=False), mock.Mock(), mock.Mock(), mock.Mock())
    with mock.patch.object(action, "_execute_module", return_value=dict(answer)):
        return action.run(task_vars={"inventory_hostname": "w-1"})


def test_a_tolerated_failure_keeps_what_the_module_warns_of() -> None:
    result = result_of(True, FAILED)
    assert (result["failed"], result["tolerated"]) == (False, True)
    assert result["warnings"] == ["The journal still lists the change", "w-1: kubelet is not healthy"]


@pytest.mark.parametrize(("tolerant", "answer"), [(False, FAILED), (True, {"changed": True})])
def test_anything_else_stays_as_the_module_answered(tolerant: bool, answer: dict[str, Any]) -> None:
    result = result_of(tolerant, answer)
    assert {key: result[key] for key in answer} == answer and "tolerated" not in result
