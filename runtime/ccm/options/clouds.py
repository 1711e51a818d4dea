# SPDX-License-Identifier: Apache-2.0
"""Several clouds in one process, as the flags name them. No I/O.

    --cloud-provider=openstack,static --cloud-config=openstack=/etc/ccm/os.conf,static=/etc/ccm/static.yaml
    --cloud-nodes=static=bm-*  --load-balancer-class=metal=static  --default-load-balancer-provider=openstack

    --cloud-cluster-cidr=static=10.244.128.0/17

With one provider, `--cloud-config` is a plain path, as in upstream, even if it contains `=` or `,`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from ccm.base.text import quoted
from ccm.controllers.nodes.ownership_rules import Declarations
from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.shared.pod_network_rules import Network, lies_in, parse_cidr

from .load_balancer_classes import NOBODY, is_class


class CloudFlags(msgspec.Struct, frozen=True):
    """One cloud: its provider, the file of its configuration ("" for none), and the patterns of its Nodes' names."""

    provider: str
    config: str = ""
    nodes: tuple[str, ...] = ()


def provider_names(text: str) -> list[str]:
    """Return the providers that `--cloud-provider` names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def clouds(providers: str, configs: str, nodes: Sequence[str]) -> tuple[list[CloudFlags], list[str]]:
    """Return the clouds in the order in which they are named, and all problems, one sentence each."""
    names = provider_names(providers)
    if len(names) < 2:
        alone = names[0] if names else ""
        problems = [f"--cloud-nodes={','.join(nodes)} needs several providers in --cloud-provider"] if nodes else []
        return [CloudFlags(alone, configs)] if alone else [], problems
    files, problems = _files(configs, names)
    patterns, wrong = _patterns(nodes)
    every = [CloudFlags(name, files.get(name, ""), tuple(patterns.get(name, ()))) for name in dict.fromkeys(names)]
    return every, [*problems, *wrong, *Declarations(tuple(names), patterns).problems()]


def _files(text: str, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    files: dict[str, str] = {}
    problems = []
    for part in filter(None, text.split(",")):
        name, separator, path = part.partition("=")
        if not separator or not path:
            problems.append(
                f"--cloud-config: {quoted(part)} does not say whose it is: with several providers, write PROVIDER=FILE"
            )
        elif name not in names:
            problems.append(f"--cloud-config: {quoted(part)} is for {name!r}, which --cloud-provider does not name")
        elif name in files:
            problems.append(f"--cloud-config names two files for {name!r}: {files[name]} and {path}")
        elif path in files.values():  # both would serve one project, if both can read the file at all
            other = next(each for each, own in files.items() if own == path)
            problems.append(f"--cloud-config names {path} for both {other!r} and {name!r}: each cloud has its own file")
        else:
            files[name] = path
    return files, problems


def _patterns(parts: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    patterns: dict[str, list[str]] = {}
    problems = []
    for part in parts:
        name, separator, pattern = part.partition("=")
        if not separator or not name or not pattern:
            problems.append(f"--cloud-nodes: {quoted(part)} is not PROVIDER=PATTERN, such as static=bm-*")
        else:
            patterns.setdefault(name, []).append(pattern)
    return patterns, problems


def ranges(
    parts: Sequence[str], providers: Collection[str] | None, cluster: Sequence[Network]
) -> tuple[dict[str, tuple[Network, ...]], list[str]]:
    """Return the ranges of pod CIDRs of single providers, in the order of the families of `cluster`, and all problems.

    `parts`: PROVIDER=CIDR. `providers`: those of `--cloud-provider`, None to skip that check. `cluster`: the ranges of
    `--cluster-cidr`. A provider needs one range of each family of `cluster`, so that all Nodes have the same families.
    """
    networks: list[tuple[str, Network]] = []
    problems: list[str] = []
    for part in parts:
        name, _, text = part.partition("=")
        try:
            network = parse_cidr(text)
        except ValueError as error:
            problems.append(f"--cloud-cluster-cidr: {quoted(part)} is not PROVIDER=CIDR: {error}")
            continue
        if providers is not None and name not in providers:
            problems.append(
                f"--cloud-cluster-cidr: {quoted(part)} is for {name!r}, which --cloud-provider does not name"
            )
        elif not any(lies_in(network, each) for each in cluster):
            inside = ", ".join(map(str, cluster)) or "empty"
            problems.append(f"--cloud-cluster-cidr: {part} is not inside --cluster-cidr, which is {inside}")
        else:
            problems += [
                f"--cloud-cluster-cidr: {part} overlaps with {other}={each}, and two Nodes must not get one pod CIDR"
                for other, each in networks
                if each.overlaps(network)
            ]
            networks.append((name, network))
    own: dict[str, tuple[Network, ...]] = {}
    for name in dict.fromkeys(name for name, _ in networks):
        by_family = {network.version: network for each, network in networks if each == name}
        families = [each.version for each in cluster]
        if len(by_family) < len(families) or len([each for each, _ in networks if each == name]) > len(by_family):
            problems.append(
                f"--cloud-cluster-cidr: {name} needs one range of each family of --cluster-cidr, which is "
                f"{', '.join(map(str, cluster))}"
            )
        else:
            own[name] = tuple(by_family[family] for family in families)
    return own, problems


def division(
    declared: Sequence[str], default: str, with_balancers: Mapping[str, bool]
) -> tuple[dict[str, ServedClasses], list[str]]:
    """Return which Services each of several providers serves, and all problems.

    `declared`: NAME=PROVIDER. `default`: the provider of Services without a class, `NOBODY` for none, "" for the only
    one that has load balancers. `with_balancers`: provider -> whether it has load balancers, as configured.
    """
    able = [name for name, has in with_balancers.items() if has]
    problems: list[str] = []
    classes: dict[str, str] = {}
    for text in declared:
        name, _, provider = text.partition("=")
        if not is_class(name):
            problems.append(f"--load-balancer-class: {quoted(name)} is no class that a Service can have")
        elif problem := _server_problem(provider, able, with_balancers):
            problems.append(f"--load-balancer-class: {text} {problem}")
        elif name in classes:
            problems.append(f"--load-balancer-class names {name} more than once: a Service has one provider")
        else:
            classes[name] = provider
    if default not in ("", NOBODY):
        if problem := _server_problem(default, able, with_balancers):
            others = " or ".join([*able, NOBODY])
            problems.append(f"--default-load-balancer-provider={default} {problem}: set it to {others}")
    elif default == NOBODY and able and not declared:
        problems.append(
            f"--default-load-balancer-provider={NOBODY} without --load-balancer-class leaves no Service to serve: name "
            "a class, or turn the controller off with --controllers='*,-service-lb-controller'"
        )
    elif not default and len(able) > 1:
        problems.append(
            f"{' and '.join(able)} both have load balancers: say with --default-load-balancer-provider who serves "
            f"Services without a class, or {NOBODY}"
        )
    serving = default or (able[0] if len(able) == 1 else NOBODY)
    served = {}
    for provider in able:
        own = frozenset(name for name, server in classes.items() if server == provider)
        if own or provider == serving:
            served[provider] = ServedClasses(own, provider == serving, are_shared=True)
    return served, problems


def _server_problem(provider: str, able: Collection[str], known: Collection[str]) -> str:
    """Return why Services cannot be given to this provider, "" if they can."""
    if not provider:
        return f"names no provider: with several, write NAME=PROVIDER, one of {', '.join(able) or 'none'}"
    if provider not in known:
        return f"names {provider!r}, which --cloud-provider does not name"
    return "" if provider in able else f"names {provider!r}, which has no load balancers as it is configured"
