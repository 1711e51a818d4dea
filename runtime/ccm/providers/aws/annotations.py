# SPDX-License-Identifier: Apache-2.0
"""The formats of annotations' values, and the annotations that both types of load balancers read. Pure.

Texts that end up in the account's resources and in Events have a format and a maximum length, because the author of a
Service may be untrusted. The functions that read a text raise ValueError, whose message says what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import MANY, Annotation, AnnotationTable, ServiceAnnotations, number, selector
from ccm.cloud.toolkit.untrusted_text import quoted

PREFIX = "service.beta.kubernetes.io/aws-load-balancer-"
ARN = re.compile(r"arn:[\w-]{1,32}:(acm|iam):[\w-]{0,32}:\d{12}:[\w+=,.@/:-]{1,512}", re.ASCII)
WORD = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
TYPE = re.compile(r"[A-Za-z0-9_.-]{0,128}", re.ASCII)
PATH = re.compile(r"/[!-~]{0,1023}", re.ASCII)
BUCKET = re.compile(r"[a-z0-9.-]{3,63}", re.ASCII)
OBJECTS = re.compile(r"[ -~]{0,512}", re.ASCII)
SUBNET = re.compile(r"[ -+.-~-]{1,255}", re.ASCII)
TAG = re.compile(r"[\w .:/=+@-]{1,127}")
TAG_VALUE = re.compile(r"[\w .:/=+@-]{0,256}")
TRAFFIC_PORT = "traffic-port"
BOOL, SECONDS = "true or false", "seconds"

#: Annotations that only the AWS Load Balancer Controller reads.
ELSEWHERE = (
    *("alpn-policy", "attributes", "ip-address-type", "ipv6-addresses", "listener-attributes"),
    *("manage-backend-security-group-rules", "multi-cluster-target-group", "name", "nlb-target-type", "scheme"),
    *("healthcheck-success-codes", "inbound-sg-rules-on-private-link-traffic", "security-group-prefix-lists"),
)


def internal(text: str) -> bool:
    """Return whether the text means internal: as in cloud-provider-aws, every text does except `false` and an empty
    one."""
    return text not in ("", "false")


def boolean(text: str) -> bool:
    if text not in ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"):
        raise ValueError("true or false")
    return text in ("1", "t", "T", "TRUE", "true", "True")


def matching(form: re.Pattern[str], kind: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(kind)
        return text

    return read


def list_of(form: re.Pattern[str], kind: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if not 0 < len(parts) <= MANY or not all(form.fullmatch(each) for each in parts):
            raise ValueError(f"at most {MANY} {kind}, comma-separated")
        return parts

    return read


def ports(text: str) -> tuple[str, ...]:
    """Return the names or numbers of ports; () stands for all ports."""
    return () if text.strip() in ("", "*") else list_of(WORD, "names or numbers of ports")(text)


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text.lower()

    return read


def check_port(text: str) -> str:
    return text if text == TRAFFIC_PORT else str(number(1, 65535)(text))


def tags(text: str) -> dict[str, str]:
    """Read tags as cloud-provider-aws does: an item without a name is left out, and a value ends at the next `=`.
    `_oddities` warns about both. Raises ValueError."""
    tags_by_name: dict[str, str] = {}
    for name, value, *_ in _items(text):
        if not name:
            continue
        reserved = name.lower().startswith(("aws:", "kubernetes.io/", "ccm-outoftree/")) or name == "KubernetesCluster"
        if not TAG.fullmatch(name) or not TAG_VALUE.fullmatch(value) or reserved or len(tags_by_name) >= MANY:
            raise ValueError(
                f"at most {MANY} tags name=value, comma-separated, without names that AWS or Kubernetes reserves"
            )
        tags_by_name[name] = value
    return tags_by_name


def _items(text: str) -> list[list[str]]:
    """Split the text at commas, and each item at `=`: its name and its value come first."""
    parts = filter(None, (part.strip() for part in text.split(",")))
    return [[piece.strip() for piece in f"{part}{'' if '=' in part else '='}".split("=")] for part in parts]


def annotation(
    name: str, kind: str, effect: str, read: Callable[[str], Any], default: str = "", **more: bool
) -> Annotation:
    """Return an annotation of this provider. `name`: without the prefix."""
    return Annotation(PREFIX + name, kind, effect, read, default, **more)


@dataclass(frozen=True)
class TypeAnnotations:
    """The annotations that one type of load balancers reads. `type`: the type's name, for messages. `refused`: a name
    without the prefix -> the reason. `without_effect`: a name without the prefix -> what to do instead."""

    type: str
    table: AnnotationTable
    refused: Mapping[str, str]
    without_effect: Mapping[str, str]

    def parse(self, annotations: Mapping[str, str], *, nodes_only: bool = False) -> ServiceAnnotations:
        """Return the values of the annotations. Raises Invalid with all values that cannot be used, all refused
        annotations, and all annotations that are probably misspelled.

        `nodes_only`: check only annotations that choose nodes. A mistake in another annotation must not stop updates of
        the targets.
        """
        values = ServiceAnnotations(annotations, self.table)
        if nodes_only:
            problems = list(values.problems_of("target-node-labels"))
        else:
            refused = {PREFIX + name: why for name, why in self.refused.items() if PREFIX + name in annotations}
            known = {PREFIX + name for name in (*self.without_effect, *ELSEWHERE)} | refused.keys()
            unknown = [key for key in self.table.unknown(annotations) if key not in known]
            problems = [*values.problems, *(f"annotation {key}: {why}" for key, why in refused.items())]
            problems += [f"annotation {key}: unknown" for key in unknown]
        if problems:
            raise Invalid("; ".join(problems))
        return values

    def warnings(self, annotations: Mapping[str, str]) -> list[str]:
        """Return warnings about annotations that have no effect, or not the effect that their text suggests."""
        without_effect = [
            f"annotation {PREFIX}{name}: no effect on a {self.type}: {instead}"
            for name, instead in self.without_effect.items()
            if PREFIX + name in annotations
        ]
        return without_effect + _oddities(annotations)


def _oddities(annotations: Mapping[str, str]) -> list[str]:
    """Return the warnings that both types of load balancers have: about annotations that only another controller reads,
    and about values that do not mean what they seem to mean."""
    warnings = []
    text = annotations.get(f"{PREFIX}internal", "")
    if text != "false" and text.strip().lower() in ("false", "f", "no", "off", "0"):
        warnings.append(f"annotation {PREFIX}internal: {quoted(text)} means internal, as every text but false does")
    if any(not name or rest for name, _, *rest in _items(annotations.get(f"{PREFIX}additional-resource-tags", ""))):
        warnings.append(
            f"annotation {PREFIX}additional-resource-tags: an item without a name is left out, and a value ends at its "
            "first =, as in cloud-provider-aws: write name=value, comma-separated"
        )
    if names := ", ".join(f"...{name}" for name in ELSEWHERE if PREFIX + name in annotations):
        warnings.append(f"annotations {PREFIX}{names}: only the AWS Load Balancer Controller reads them")
    return warnings


_a = annotation
#: The annotations of both types of load balancers.
COMMON = (
    _a("type", "`nlb`, `classic`, `external` or `nlb-ip`", "`nlb` is a Network Load Balancer, `classic` a Classic one. "
       "The others are left to the AWS Load Balancer Controller.", matching(TYPE, "a word, or nothing"),
       "`LoadBalancerType`"),
    _a("internal", "`false`, or any other text", "The load balancer has private addresses only.", internal, "`false`",
       for_new=True),
    _a("target-node-labels", "labels", "Only Nodes with these labels are targets.", selector),
    _a("additional-resource-tags", "tags name=value", "Tags of the resources that the provider creates.", tags),
    _a("ssl-cert", "ARN", "The certificate of TLS listeners.", matching(ARN, "the ARN of a certificate"),
       names_another=True),
    _a("ssl-ports", "names or numbers", "The ports that use TLS; `*` means all ports.", ports, "`*`"),
    _a("ssl-negotiation-policy", "name", "The policy of TLS listeners.", matching(WORD, "the name of a policy")),
    _a("cross-zone-load-balancing-enabled", BOOL, "Each zone sends to targets in all zones.", boolean, "`false`"),
    _a("access-log-enabled", BOOL, "Access logs are written to S3.", boolean, "`false`"),
    _a("access-log-s3-bucket-name", "name", "The bucket of the access logs.", matching(BUCKET, "the name of a bucket"),
       names_another=True),
    _a("access-log-s3-bucket-prefix", "text", "The prefix of the access logs.", matching(OBJECTS, "a prefix")),
)  # fmt: skip
