# SPDX-License-Identifier: Apache-2.0
"""docs/reference/contract.md, from the code: all public names of `ccm.cloud` and `ccm.conformance`."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from ccm import cloud, conformance

INTRO = """# All of `ccm.cloud`

This page lists everything that a provider implements and receives. [The contract](../providers/contract.md) says how
these work together, what the framework does, and how stable they are. Times are in seconds. Addresses and CIDRs are
text in the cloud's own spelling.
"""
PARTS: dict[str, tuple[Any, ...]] = {
    "The provider": (cloud.Cloud, cloud.ProviderConfig, cloud.Limits, cloud.Rate),
    "Instances": (
        cloud.Instances,
        cloud.CanonicalIds,
        cloud.InstanceRef,
        cloud.Page,
        cloud.Instance,
        cloud.InstanceState,
        cloud.Address,
        cloud.AddressType,
    ),
    "Load balancers": (
        cloud.LoadBalancers,
        cloud.LoadBalancerSpec,
        cloud.Port,
        cloud.Backend,
        cloud.Backends,
        cloud.LoadBalancer,
        cloud.Ingress,
        cloud.IngressPort,
        cloud.AllocatesAddresses,
        cloud.Allocations,
        cloud.ComparesLoadBalancers,
        cloud.DrainsBackends,
        cloud.KeepsLoadBalancers,
        cloud.Kept,
        cloud.KeptLoadBalancer,
    ),
    "Routes": (cloud.Routes, cloud.Route),
    "Volumes": (cloud.Volumes, cloud.VolumeRef),
    "Tags": (cloud.InstanceTags,),
    "Quotas": (cloud.Quotas, cloud.Quota),
    "Webhooks": (cloud.Webhook,),
    "Errors": (
        cloud.CloudError,
        cloud.NotFound,
        cloud.Transient,
        cloud.RateLimited,
        cloud.RetryAfter,
        cloud.Unauthorized,
        cloud.Forbidden,
        cloud.Conflict,
        cloud.Invalid,
        cloud.QuotaExceeded,
        cloud.NotImplementedByCloud,
        cloud.ImplementedElsewhere,
        cloud.ConfigError,
    ),
    "Libraries that block": (cloud.BlockingCalls,),
}
CONFORMANCE = """## `ccm.conformance`

A provider's own tests use this package, as [the example's](../../runtime/examples/ccm-provider-acme/test_acme.py) do.
[The cases](conformance.md) are on a page of their own.
"""
TESTS = (
    conformance.check,
    conformance.Case,
    conformance.Subject,
    conformance.World,
    conformance.Listener,
    conformance.Result,
    conformance.Outcome,
    conformance.NotRun,
)
Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]


def page(head: str, table: Table) -> Iterator[str]:
    """Yield the page's text. `table` returns a Markdown table, given column names and rows."""
    yield head + INTRO
    for title, kinds in PARTS.items():
        yield f"## {title}\n"
        for kind in kinds:
            yield from _entry(kind, table)
    yield CONFORMANCE
    for kind in TESTS:
        yield from _entry(kind, table)


def _entry(kind: Any, table: Table) -> Iterator[str]:
    yield f"### `{kind.__name__}`\n"
    own = vars(kind).get("__init__")
    if inspect.isfunction(kind):
        yield f"```python\n{_signature(kind)}\n```\n"
    elif own is not None and (kind is cloud.BlockingCalls or issubclass(kind, cloud.CloudError)):
        yield f"```python\n{kind.__name__}{_plain(_parameters(own))}\n```\n"
    if text := _text(kind):
        yield text
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        yield table(("Member", "Value"), [(f"`{member.name}`", f"`{member.value}`") for member in kind])
        return
    if dataclasses.is_dataclass(kind):
        rows = [(f"`{each.name}`", f"`{each.type}`", _default(each)) for each in dataclasses.fields(kind)]
        yield table(("Field", "Type", "Default"), rows)
    elif isinstance(kind, type) and not issubclass(kind, Exception):
        values = {name: _plain(text) for name, text in vars(kind).get("__annotations__", {}).items() if name[0] != "_"}
        if values:
            yield table(("Attribute", "Type"), [(f"`{name}`", f"`{text}`") for name, text in values.items()])
    if isinstance(kind, type):
        yield from _methods(kind)


def _methods(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if isinstance(member, property) and member.fget is not None:
            yield f"```python\n{name}: {_plain(str(inspect.signature(member.fget).return_annotation))}\n```\n"
            if text := _text(member):
                yield text
        elif isinstance(member, classmethod):
            yield f"```python\n@classmethod\n{_signature(getattr(kind, name))}\n```\n"
            if text := _text(member.__func__):
                yield text
        elif inspect.isfunction(member) and not name.startswith("_") and member.__module__.startswith("ccm."):
            yield f"```python\n{_signature(member)}\n```\n"
            if text := _text(member):
                yield text


def _signature(function: Any) -> str:
    word = "async def" if inspect.iscoroutinefunction(function) else "def"
    return f"{word} {function.__name__}{_plain(str(inspect.signature(function)))}"


def _parameters(function: Any) -> str:
    return str(inspect.signature(function)).replace("(self, ", "(").removesuffix(" -> 'None'")


def _plain(text: str) -> str:
    """Remove the quotes around annotations, which are texts here. An empty text as a default keeps its quotes."""
    return text.replace("''", "\0").replace("'", "").replace("\0", "''")


def _text(thing: Any) -> str:
    """Return the docstring, with its notes about single fields as a list. Return "" without a docstring: Python gives
    such a dataclass its signature as one."""
    text = inspect.cleandoc(thing.__doc__ or "")
    if not text or text.startswith(f"{getattr(thing, '__name__', '')}("):
        return ""
    lines: list[str] = []
    for line in text.splitlines():
        if re.match(r"`\w+`: ", line):
            if lines and lines[-1] and not lines[-1].startswith(("- ", "  ")):
                lines.append("")
            line = f"- {line}"
        elif line and lines and lines[-1].startswith(("- ", "  ")):
            line = f"  {line}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
        return f"`{value}`" if isinstance(value, enum.Enum) else f"`{value!r}`"
    return "empty" if field.default_factory is not dataclasses.MISSING else "required"
