# SPDX-License-Identifier: Apache-2.0
"""What an API server makes of a JSON merge patch."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """The target with the patch applied (RFC 7386); neither is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result
