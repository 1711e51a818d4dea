# SPDX-License-Identifier: Apache-2.0
"""The annotations of Services: those of cloudstack-kubernetes-provider, and `node-selector`. Pure.

An Event of the Service reports an invalid value. Each value has a format and a maximum length, because the author of a
Service may be untrusted and values end up in the cloud's resources and in Events.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import (
    Annotation,
    AnnotationTable,
    ServiceAnnotations,
    boolean,
    host_name,
    selector,
)

PREFIX = "service.beta.kubernetes.io/cloudstack-load-balancer-"
MANY = 50


def cidrs(text: str) -> tuple[str, ...]:
    """Return IPv4 networks, sorted. Raises ValueError for other texts, for more than MANY networks, and for none."""
    parts = text.split(",")
    try:
        networks = {str(ipaddress.IPv4Network(part.strip(), strict=False)) for part in parts}
    except ValueError:
        networks = set()
    if not networks or len(parts) > MANY:
        raise ValueError(f"at least one and at most {MANY} IPv4 CIDRs, comma-separated")
    return tuple(sorted(networks))


TABLE = AnnotationTable(
    PREFIX,
    (
        Annotation(
            f"{PREFIX}proxy-protocol",
            "true or false",
            "Whether nodes get the PROXY protocol; for TCP only.",
            boolean,
            "false",
        ),
        Annotation(
            f"{PREFIX}hostname",
            "DNS name",
            "The host name in the Service's status, instead of the address.",
            host_name,
        ),
        Annotation(f"{PREFIX}source-cidrs", "CIDRs", "The clients that may connect.", cidrs, "all clients"),
        Annotation(f"{PREFIX}node-selector", "labels", "Only Nodes with these labels receive traffic.", selector),
        Annotation(
            f"{PREFIX}ip-associated-by-controller",
            "true or false",
            "Whether the address in `spec.loadBalancerIP` is released with the Service. cloudstack-kubernetes-provider "
            "writes this annotation; it has an effect only for a Service that is taken over.",
            boolean,
            "false",
        ),
    ),
)


def parse(annotations: Mapping[str, str], *, nodes_only: bool = False) -> ServiceAnnotations:
    """Return the values of the annotations. Raises Invalid with all values that cannot be used, and all annotations
    that are probably misspelled.

    `nodes_only`: check only the annotation that chooses nodes. A mistake in another one must not stop updates of the
    targets.
    """
    reader = ServiceAnnotations(annotations, TABLE)
    if nodes_only:
        if problems := reader.problems_of("node-selector"):
            raise Invalid("; ".join(problems))
        return reader
    problems = [*reader.problems, *(f"annotation {key}: unknown" for key in TABLE.unknown(annotations))]
    if problems:
        raise Invalid("; ".join(problems))
    return reader
