# SPDX-License-Identifier: Apache-2.0
"""Quotas of the project."""

from __future__ import annotations

from collections import Counter

from ..trial import Failed, Trial
from .collection import Collection

COLLECTION = Collection("quotas", needs="quotas")
case = COLLECTION.case


@case()
async def each_quota_is_listed_once_with_its_numbers(trial: Trial) -> None:
    """Each quota has its own kind, and whole numbers for the usage and the limit. Resources without a limit are left
    out."""
    assert trial.cloud.quotas is not None
    quotas = await trial.ask(trial.cloud.quotas.list)
    if twice := [kind for kind, count in Counter(each.kind for each in quotas).items() if count > 1]:
        raise Failed(f"quotas of {', '.join(twice)} are listed more than once")
    for quota in quotas:
        numbers = (quota.used, quota.limit)
        if not quota.kind or any(type(number) is not int or number < 0 for number in numbers):
            raise Failed(f"quota {quota}: it needs a kind, and numbers of 0 or more; leave out what has no limit")
