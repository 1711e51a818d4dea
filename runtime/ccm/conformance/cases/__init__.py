# SPDX-License-Identifier: Apache-2.0
"""All cases, in the order in which they run."""

from ..kit import Case
from . import (
    configuration,
    draining,
    failures,
    fingerprints,
    instances,
    keeping,
    later_pages,
    load_balancers,
    nobody_serves,
    quotas,
    routes,
    service_settings,
    side_by_side,
    tags,
    volumes,
)

CASES: tuple[Case, ...] = tuple(
    case
    for module in (
        configuration,
        instances,
        failures,
        volumes,
        tags,
        quotas,
        fingerprints,
        load_balancers,
        service_settings,
        nobody_serves,
        keeping,
        draining,
        later_pages,
        side_by_side,
        routes,
    )
    for case in module.COLLECTION.cases
)
