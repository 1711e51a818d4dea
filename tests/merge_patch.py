# SPDX-License-Identifier: Apache-2.0
"""What an API server makes of a JSON merge patch, and of a strategic one."""

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


#: Lists of an object's status that a strategic merge patch merges by `type`: a Node's, and a Service's conditions.
MERGED_BY_TYPE = ("addresses", "conditions")
REPLACE = {"$patch": "replace"}


def strategic_merge(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The target with the patch applied as a strategic merge patch, as far as the runtime sends such patches.

    Lists of the status are merged by `type`, unless the directive `$patch: replace` is among their elements.
    """
    status = dict(patch.get("status") or {})
    for name in MERGED_BY_TYPE:
        if name in status:
            status[name] = _merge_by_type((target.get("status") or {}).get(name) or [], status[name]) or None
    return merge(target, {**patch, "status": status} if status else patch)


def _merge_by_type(old: list[dict[str, Any]], given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if REPLACE in given:
        return [each for each in given if each != REPLACE]
    found = {each["type"]: each for each in old}
    for each in given:
        if each.get("$patch") == "delete":
            found.pop(each["type"], None)
            continue
        found[each["type"]] = {**found.get(each["type"], {}), **each}
    return list(found.values())
