# SPDX-License-Identifier: Apache-2.0
"""docs/reference/libcloud.md: the keys of the provider `libcloud`, and what each driver reports. For that,
each driver reads the answers that libcloud's own tests recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ccm.cloud import Instance
from ccm.cloud.toolkit.setting_kinds import KINDS
from ccm.providers.libcloud.drivers import DRIVERS, Driver
from ccm.providers.libcloud.settings import KEYS

sys.path.append(str(Path(__file__).parents[2]))

INTRO = """# Drivers and configuration of the provider `libcloud`

[Another page](../providers/libcloud.md) says how to run the provider, and what it promises.

## What works with which driver

For each row, the driver read answers that Apache Libcloud recorded. It ran with the same code as in the controller.
**Recorded** means that somebody saved an answer of the cloud when the driver was written, and perhaps shortened it by
hand. It says nothing about the cloud of today. **Real** means that the driver also ran against the cloud's own
software. A dash means that the recorded answers do not contain the fact.
"""
#: Driver -> what it was tested with. Drivers that were tested only with recorded answers are left out.
EVIDENCE = {
    "digitalocean": "recorded, and a stand-in for the cloud, over HTTP",
    "openstack": "recorded, and real: released versions of Keystone and Nova",
}
KEYS_INTRO = """## Keys of every driver

The file of `--cloud-config` is YAML. All problems are reported at once, each with its line. The messages quote no
values.
"""
ARGUMENTS_INTRO = """## Keys of each driver

A secret may be in a file: `token_file: /etc/ccm/token` instead of `token`. A change to the file takes effect
without a restart.
"""


def page(head: str, table: Any) -> Iterator[str]:
    """Yield the page's text. `table` returns a Markdown table, given column names and rows."""
    from tests.clouds.libcloud import recorded_answers

    yield head + INTRO
    rows = []
    for name, driver in DRIVERS.items():
        _, listing = recorded_answers.listing(name)
        found = recorded_answers.instances(name)
        own = sum(1 for each in listing.answers if "token" not in each.where)
        shown = f"`{found[-1].provider_id}`"
        rows.append((f"`{name}`", driver.cloud, shown, *_facts(found), own, _total(driver)))
    columns = (
        "Driver",
        "Cloud",
        "A recorded providerID",
        "Zone",
        "Region",
        "Type",
        "Addresses",
        "Machines",
        "Requests",
    )
    yield table((*columns, "Why a listing counts as complete"), rows)
    yield "Each driver's providerIDs have the form that the cloud's own controller writes:\n"
    yield table(
        ("Driver", "Its own controller", "Evidence", "Good to know"),
        [
            (f"`{name}`", f"`{each.controller}`", EVIDENCE.get(name, "recorded"), each.note)
            for name, each in DRIVERS.items()
        ],
    )
    yield KEYS_INTRO
    rows = [("`driver`", "text", "", f"one of {', '.join(f'`{name}`' for name in DRIVERS)}")]
    rows += [(f"`{name}`", _kind(key.kind), _default(key.default), key.help) for name, key in KEYS.items()]
    rows.append(("`zones`", "list", "", "the zones to list, for `scaleway` alone"))
    yield table(("Key", "Kind", "Default", "Meaning"), rows)
    yield ARGUMENTS_INTRO
    yield table(
        ("Driver", "Key", "Required", "Secret", "Meaning"),
        [
            (f"`{name}`", f"`{key}`", _yes(each.required), _yes(each.secret), each.help)
            for name, driver in DRIVERS.items()
            for key, each in driver.arguments.items()
        ],
    )


def _facts(instances: list[Instance]) -> Iterator[str | int]:
    for name in ("zone", "region", "type"):
        values = sorted({getattr(each, name) for each in instances} - {""})
        yield f"`{values[0]}`" if values else "-"
    types = {address.type.value for each in instances for address in each.addresses} - {"Hostname"}
    yield ", ".join(sorted(types)) or "-"
    yield len(instances)


def _total(driver: Driver) -> str:
    rows = driver.rows[0]
    if rows.total or rows.total_header:
        return "the cloud says how many there are"
    if rows.page:
        return f"its length is not a multiple of the page size, {rows.page}"
    return "no answer refers to a next page"


def _kind(kind: Any) -> str:
    return str(KINDS.get(kind, kind.__name__))


def _default(value: Any) -> str:
    return "" if value == "" else f"`{value:g}s`" if isinstance(value, float) and value > 1 else f"`{value:g}`"


def _yes(value: bool) -> str:
    return "yes" if value else ""
