# SPDX-License-Identifier: Apache-2.0
"""All cases, in the order in which they run: read-only cases first."""

from ..kit import Case
from . import configuration, failures, instances, load_balancers, routes, side_by_side, volumes

CASES: tuple[Case, ...] = tuple(
    case
    for module in (configuration, instances, failures, volumes, load_balancers, side_by_side, routes)
    for case in module.COLLECTION.cases
)
