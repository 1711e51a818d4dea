# SPDX-License-Identifier: Apache-2.0
"""Applies a JSON merge patch, and a strategic merge patch, as an API server does."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """Return the target with the patch applied (RFC 7396); neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


#: Lists of the status that a strategic merge patch merges by `type`: both lists of a Node, the conditions of a Service.
MERGED_BY_TYPE = ("addresses", "conditions")
REPLACE = {"$patch": "replace"}


def strategic_merge(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the target with a strategic merge patch applied. Only patches of the form that the runtime sends work.

    The lists MERGED_BY_TYPE are merged by `type`, unless the directive `$patch: replace` is among their elements.
    """
    status = dict(patch.get("status") or {})
    for name in MERGED_BY_TYPE:
        if name in status:
            status[name] = _merge_by_type((target.get("status") or {}).get(name) or [], status[name]) or None
    return merge(target, {**patch, "status": status} if status else patch)


def _merge_by_type(old: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if REPLACE in changes:
        return [each for each in changes if each != REPLACE]
    found = {each["type"]: each for each in old}
    for each in changes:
        if each.get("$patch") == "delete":
            found.pop(each["type"], None)
            continue
        found[each["type"]] = {**found.get(each["type"], {}), **each}
    return list(found.values())
