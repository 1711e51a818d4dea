# SPDX-License-Identifier: Apache-2.0
"""All cases, in the order in which they are run: what reads first."""

from ..kit import Case
from . import configuration, failures, instances, load_balancers, routes, volumes

CASES: tuple[Case, ...] = tuple(
    case
    for module in (configuration, instances, failures, volumes, load_balancers, routes)
    for case in module.COLLECTION.cases
)
