# SPDX-License-Identifier: Apache-2.0
"""Converts a driver's nodes and the cloud's answers to instances, and checks that a listing is complete. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Address, AddressType, Instance, InstanceState, Transient
from ccm.cloud.toolkit.untrusted_text import concealed, printable, shorten

from .drivers import ASKED, Driver, Row, Rows

#: Characters that Kubernetes does not accept in the value of a label, and the maximum length of the value.
UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
LONGEST = 63
IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Machine:
    """A node as libcloud describes it. `state`: libcloud's, such as "running"."""

    id: str
    name: str
    state: str
    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """An answer of the cloud that the driver received. `where`: path and query. `content`: the answer's JSON; None if
    the answer has no JSON, or if the driver's table expects no rows in it."""

    where: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Any = None


@dataclass(frozen=True)
class Listing:
    """The result of one listing. `zone`: the zone that was listed, "" for everything."""

    zone: str
    machines: tuple[Machine, ...]
    answers: tuple[Answer, ...]


def kind(driver: Driver, where: str) -> Rows | None:
    """Return the kind of rows in the answer to the request `where`; None if the driver reads no rows from it."""
    return next((each for each in driver.rows if re.search(each.where, where)), None)


def instances(driver: Driver, listing: Listing, arguments: Mapping[str, str], without: Iterable[str]) -> list[Instance]:
    """Return the instances of a listing. `arguments`: the configured arguments. `without`: texts that no message may
    contain. Raises Transient if the listing is not complete, or an answer has another shape than the driver's table
    says."""
    try:
        rows = _rows(driver, listing)
        _require_whole(driver, listing, rows)
        listed = [
            _instance(driver, machine, rows[machine.id], arguments)
            for machine in listing.machines
            if machine.state not in driver.gone
        ]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {printable(shorten(concealed(str(error), without, shortest=1), 100))}"
        raise Transient(f"{driver.cloud}: an answer has another form than its table describes ({what})") from None
    ids = [each.provider_id for each in listed]
    if len(set(ids)) < len(ids):
        raise Transient(f"{driver.cloud}: the listing has a machine twice: it changed while it was read")
    return listed


def unreachable(driver: Driver, answers: Sequence[Answer]) -> str:
    """Return which parts of the cloud could not be read, as its answers say; "" if they say nothing. Google Compute
    Engine says so in the zone's part of an aggregated list."""
    parts = []
    for answer in answers:
        items = answer.content.get("items") if isinstance(answer.content, dict) else None
        for name, part in items.items() if isinstance(items, dict) else ():
            warning = part.get("warning") if isinstance(part, dict) else None
            code = warning.get("code") if isinstance(warning, dict) else None
            if code not in (None, "NO_RESULTS_ON_PAGE"):
                parts.append(f"{name}: {code}")
    return printable(shorten(f"{driver.cloud}: {', '.join(parts)}", 300)) if parts else ""


def _rows(driver: Driver, listing: Listing) -> dict[str, Row]:
    """Return ID -> row. The details of a machine replace its row of the list. Raises ValueError for an answer without
    the listing."""
    rows_by_id: dict[str, Row] = {}
    details: dict[str, Row] = {}
    for answer in listing.answers:
        if (rows := kind(driver, answer.where)) is None or answer.status >= 300:
            continue
        shape = dict if rows.keys else list
        if not isinstance(answer.content, shape) or (rows.keys and rows.keys[0] not in answer.content):
            raise ValueError("there is no listing in it")
        for row in rows_in(answer.content, rows.keys):
            (details if rows.details else rows_by_id)[driver.row_id(row)] = {**row, ASKED: listing.zone}
    return rows_by_id | details


def rows_in(content: Any, keys: tuple[str, ...]) -> Iterator[Row]:
    """Yield the rows to which the keys lead. An empty list may be missing in the content."""
    if not keys:
        yield from content if isinstance(content, list) else [content]
        return
    parts = content.values() if keys[0] == "*" else [content[keys[0]]] if keys[0] in content else []
    for part in parts:
        yield from rows_in(part, keys[1:])


def _require_whole(driver: Driver, listing: Listing, rows: Mapping[str, Row]) -> None:
    """Raise Transient unless the driver returned exactly the machines that the cloud lists: a driver may skip a page,
    or a machine that it cannot read."""
    listed = [
        (rows_, answer)
        for answer in listing.answers
        if (rows_ := kind(driver, answer.where)) and not rows_.details and answer.status < 300
    ]
    if not listed:
        raise Transient(f"{driver.cloud}: the driver sent none of the listing requests in its table")
    if listed[-1][0].more(listed[-1][1].content):
        raise Transient(f"{driver.cloud}: the listing has more pages than the driver read")
    there = max(len(rows), *(_total(rows_, answer) for rows_, answer in listed))
    ids = {machine.id for machine in listing.machines}
    if len(ids) < there or any(row_id not in ids for row_id in rows):
        raise Transient(f"{driver.cloud}: the listing has {len(ids)} of {there} machines")
    if any(machine.id not in rows for machine in listing.machines):
        raise Transient(f"{driver.cloud}: the driver lists a machine that is in no answer of the cloud")


def _total(rows: Rows, answer: Answer) -> int:
    """Return the total number of rows of the whole listing, as the cloud reports it; 0 if the cloud reports none.
    Raises Transient if it reports none and there may be other pages, and KeyError if a total is missing that this cloud
    always reports."""
    keys = (rows.total_header,) if rows.total_header else rows.total
    value: Any = answer.headers if rows.total_header else answer.content
    for key in keys:
        if rows.page and key not in value:
            break
        value = value[key]
    else:
        if keys:
            return int(value)
    here = sum(1 for _ in rows_in(answer.content, rows.keys)) if rows.page else 0
    if here and here % rows.page == 0:
        raise Transient(f"the cloud reports no total, and its {here} machines may be only one page of several")
    return 0


def _instance(driver: Driver, machine: Machine, row: Row, arguments: Mapping[str, str]) -> Instance:
    name = machine.name or machine.id
    addresses = tuple(_addresses(driver, machine))
    return Instance(
        provider_id=driver.provider_id(row, arguments),
        name=name,
        type=label_value(driver.type(row)),
        zone=label_value(driver.zone(row)),
        region=label_value(driver.region(row)),
        addresses=(Address(AddressType.HOSTNAME, name), *addresses),
        state=InstanceState.SHUTDOWN if machine.state in driver.shutdown else InstanceState.RUNNING,
        # A kubelet registers in lower case.
        aliases=tuple(dict.fromkeys(each for each in (name.lower(), *driver.aliases(row)) if each and each != name)),
        incomplete="" if addresses else f"{driver.cloud} reports no address of the machine yet",
    )


def _addresses(driver: Driver, machine: Machine) -> Iterator[Address]:
    public = [each for each in map(_ip, machine.public) if each]
    if driver.sort_addresses:
        public.sort(key=lambda each: (each.version, int(each)))
    yielded: set[IP] = set()
    for type_, texts in (
        (AddressType.INTERNAL_IP, [each for each in map(_ip, machine.private) if each]),
        (AddressType.EXTERNAL_IP, public),
    ):
        for text in texts:
            if text not in yielded:
                yielded.add(text)
                yield Address(type_, str(text))


def _ip(text: str) -> IP | None:
    """Return the address; None for one that the cloud has not assigned yet. Raises ValueError."""
    if not text:
        return None
    ip = ipaddress.ip_address(text.partition("/")[0])
    return None if ip.is_unspecified else ip


def label_value(text: str) -> str:
    """Return the text as the value of a label: other characters become dashes, and the value ends after `LONGEST`
    characters."""
    return UNFIT.sub("-", text)[:LONGEST].strip("-_.")
