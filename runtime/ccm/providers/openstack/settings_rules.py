# SPDX-License-Identifier: Apache-2.0
"""Checks of cloud.conf beyond single values: contradictions and missing keys. No I/O."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ccm.cloud.toolkit.gcfg_sections import GcfgSections

from .settings_sections import FIRST_OF, Global, LoadBalancerClass, LoadBalancerSection


def check(
    reader: GcfgSections, auth: Global, balancer: LoadBalancerSection, classes: Mapping[str, LoadBalancerClass]
) -> None:
    """Add the problems found to the reader's problems."""
    for line_of, problem in _contradictions(auth):
        reader.problem("Global", line_of, problem)
    for other in ("clouds-file", "cloud"):
        if _of(auth, other) and not auth.use_clouds:
            reader.problem("Global", other, f"{other}: has an effect only with use-clouds=true", "use-clouds")
    for line_of, problem in _absences(auth):
        reader.missing("Global", line_of, problem)
    if not balancer.use_octavia:
        reader.problem("LoadBalancer", "use-octavia", "use-octavia=false: only Octavia is supported; remove the key")
    if balancer.lb_provider == "ovn" and balancer.lb_method != "SOURCE_IP_PORT":
        problem = "lb-provider ovn supports only SOURCE_IP_PORT: set lb-method to it"
        reader.problem("LoadBalancer", "lb-method", problem, "lb-provider")
    for spelt in ("monitor-delay", "monitor-timeout"):
        if not getattr(balancer, spelt.replace("-", "_")).is_integer():
            reader.problem("LoadBalancer", spelt, f"{spelt}: Octavia needs whole seconds, such as 5s or 1m30s")
    if balancer.monitor_timeout > balancer.monitor_delay:
        sentence = "is longer than monitor-delay: a check may still wait when the next one is due"
        reader.warn("LoadBalancer", "monitor-timeout", sentence, "monitor-delay")


def first_of(reader: GcfgSections, name: str, section: Any, sub: str = "") -> Any:
    """Return the section without keys that have no effect because another key is set, and report those keys."""
    for keys in FIRST_OF.get(name, ()):
        present = [key for key in keys if _of(section, key)]
        for key in present[1:]:
            reader.no_effect(name, key, f"{present[0]} is set", sub)
            section = dataclasses.replace(section, **{key.replace("-", "_"): ""})
    return section


def _ways(auth: Global) -> list[str]:
    """Return the ways to log in that are set, each as the name of its key."""
    ways = {
        "application-credential-secret": auth.application_credential_id or auth.application_credential_name,
        "trust-id": auth.trust_id,
        "password": auth.password and not auth.trust_id,  # with a trust, it is the trustee's password
        "token": auth.token,
    }
    return [way for way, is_present in ways.items() if is_present]


def _contradictions(auth: Global) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the keys that are set: the key whose line is reported, and the message."""
    chosen = _ways(auth)
    if len(chosen) > 1:
        yield chosen[1], f"{', '.join(chosen)}: these are {len(chosen)} ways to log in; keep one"
    if auth.username and auth.user_id and not auth.application_credential_id:
        yield "username", "username, user-id: set only one of them"
    if auth.tls_insecure and auth.ca_file:
        yield "tls-insecure", "tls-insecure, ca-file: tls-insecure turns off the check that needs ca-file; remove one"
    if auth.auth_url and not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", auth.auth_url):
        yield "auth-url", "auth-url: expected http://HOST:PORT/v3 or https://HOST:PORT/v3, without credentials"
    elif re.search(r"/v2\.0/?$", auth.auth_url):
        yield "auth-url", "auth-url: keystone removed API 2.0 in 2018: end the URL with /v3"


def _absences(auth: Global) -> Iterator[tuple[str, str]]:
    """Yield what is missing: the key whose line is reported, and the message."""
    if bool(auth.cert_file) != bool(auth.key_file):
        yield ("cert-file" if auth.cert_file else "key-file"), "cert-file, key-file: set both or neither"
    if auth.use_clouds:
        if not auth.cloud:
            yield "use-clouds", "use-clouds: cloud is missing: set it to the cloud's name in clouds.yaml"
        return
    if not auth.auth_url:
        yield "auth-url", "auth-url: is missing"
    chosen = _ways(auth)
    if not chosen:
        choices = "username and password, an application credential, or a trust"
        yield "username", f"credentials are missing: set {choices}"
        return
    if len(chosen) == 1:
        yield from _missing(auth, chosen[0])


def _missing(auth: Global, way: str) -> Iterator[tuple[str, str]]:
    """Yield what is missing for this way to log in: the key whose line is reported, and the message."""
    user_domain = auth.user_domain_id or auth.user_domain_name or auth.domain_id or auth.domain_name
    by_name = way == "password" or (way == "trust-id" and not auth.trustee_id) or auth.application_credential_name
    named_user = not auth.user_id and by_name
    if named_user and not auth.username:
        missing = "trustee-id: is missing (or user-id, username)"
        yield way, missing if way == "trust-id" else "username: is missing (or user-id)"
    elif named_user and not user_domain:
        yield "username", "username: names are unique only in a domain: user-domain-name (or domain-name) is missing"
    if way == "application-credential-secret" and not auth.application_credential_secret:
        yield "application-credential-id", "application-credential-secret: is missing"
    if way == "trust-id" and not (auth.trustee_password or auth.password):
        yield "trust-id", "trustee-password: is missing (or password)"
    if way == "password":
        project_domain = auth.tenant_domain_id or auth.tenant_domain_name or auth.domain_id or auth.domain_name
        if not auth.tenant_id and not auth.tenant_name:
            yield way, "tenant-id: is missing (or tenant-name)"
        elif auth.tenant_name and not project_domain:
            problem = "names are unique only in a domain: tenant-domain-name (or domain-name) is missing"
            yield "tenant-name", f"tenant-name: {problem}"


def _of(section: Any, spelt: str) -> Any:
    return getattr(section, spelt.replace("-", "_"))
