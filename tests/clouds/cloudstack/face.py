# SPDX-License-Identifier: Apache-2.0
"""A stand-in for CloudStack over HTTP: signatures, pages, and failures on request.

It is our own code; `test_form.py` compares it with the description of the API and with another client.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tests.clouds import stand_in
from tests.clouds.stand_in import StandIn, answered, drop
from tests.listening import listening

from .region import Refusal, Region, Row, missing

API_KEY = "plgWJfZK4gyS3mOMTVmjUVg-X-jlWlnfaUJ9GAbBbf9EdM-kAYMmAiLqzzq1ElZLYq_u38zCm0bewzGUdP66mg"
SECRET = "VDaACYb0LV9eNjTetIOElcVQkvJck_J_QljX_FcHRj87ZKiy0z0ty0ZsYBkoXkY9b7eq1EhwJaw7FF3akA3KBQ"
Fields = dict[str, str]


@dataclass
class Fault(stand_in.Fault):
    """A failure on request. There is one more `kind`: with `fail`, the job fails."""

    command: str = ""
    code: int = 530
    text: str = "on request"

    def concerns(self, fields: Fields) -> bool:
        return self.due(self.command, fields.get("command", ""), first_page=fields.get("page", "1") == "1")


@dataclass
class Exchange:
    """One call, for checks of its form. `method`: the HTTP method."""

    command: str
    fields: Fields
    status: int
    answer: Any
    method: str

    def __str__(self) -> str:
        return self.command


class Face(StandIn[Fault, Exchange]):
    """The API. `page_limit`: the maximum number of rows in a page."""

    def __init__(self, region: Region, page_limit: int = 500) -> None:
        super().__init__()
        self.region, self.page_limit = region, page_limit
        self.keys = {API_KEY: SECRET}

    def calls(self, since: int = 0, *, jobs: bool = True) -> list[str]:
        """Return the commands, with or without those that query jobs."""
        return [call for call in super().calls(since) if jobs or call != "queryAsyncJobResult"]

    # HTTP

    async def handle(self, request: web.Request) -> web.StreamResponse:
        given = {**request.query, **{key: str(value) for key, value in (await request.post()).items()}}
        fields = {key.lower(): value for key, value in given.items()}
        command = fields.get("command", "")
        self.region.tick()
        fault = self.fault_for(lambda each: each.concerns(fields))
        if fault is not None and not fault.late:
            if fault.kind == "status":
                return self._answered(request, fields, fault, *refused(command, Refusal(fault.code, fault.text)))
            if (early := await stand_in.instead(fault, fault.code, request)) is not None:
                return early
        try:
            self._check(fields)
            status, answer = 200, self._answer(command, fields)
            if fault is not None and fault.kind == "fail":
                self._fail(answer, fault)
        except Refusal as refusal:
            status, answer = refused(command, refusal)
        content = answer.get(f"{command.lower()}response", {})
        if fault is not None and fault.kind == "half":
            content |= {key: rows[: len(rows) // 2] for key, rows in content.items() if isinstance(rows, list)}
        if fault is not None and fault.late:
            if fault.kind == "drop":
                drop(request)
            status, answer = refused(command, Refusal(fault.code, fault.text))
        return self._answered(request, fields, fault, status, answer)

    def _answered(
        self, request: web.Request, fields: Fields, fault: Fault | None, status: int, answer: Any
    ) -> web.Response:
        copied = json.loads(json.dumps(answer))
        self.exchanges.append(Exchange(fields.get("command", ""), fields, status, copied, request.method))
        return answered(answer, fault, status=status)

    def _fail(self, answer: Any, fault: Fault) -> None:
        """Make the job that was just started fail without an effect."""
        (content,) = answer.values()
        self.region.fail(content["jobid"], Refusal(fault.code, fault.text))

    def _check(self, fields: Fields) -> None:
        """Check keys, signature and validity. Raises Refusal."""
        secret = self.keys.get(fields.get("apikey", ""))
        if secret is None or not hmac.compare_digest(_signature(fields, secret), fields.get("signature", "")):
            raise Refusal(401, "unable to verify user credentials and/or request signature")
        if fields.get("signatureversion") == "3":
            expires = datetime.strptime(fields.get("expires", ""), "%Y-%m-%dT%H:%M:%S%z")
            if expires < datetime.now(UTC):
                raise Refusal(401, "the request has expired")

    # Commands

    def _answer(self, command: str, fields: Fields) -> Any:
        found = getattr(self, f"_{re.sub('([A-Z])', lambda each: '_' + each[1].lower(), command)}", None)
        if found is None:
            raise Refusal(432, "The given command does not exist or it is not available for user")
        return {f"{command.lower()}response": found(fields)}

    def _list_capabilities(self, fields: Fields) -> Row:
        return {"capability": {"cloudstackversion": "4.22.0.0", "supportELB": "false"}}

    def _list_virtual_machines(self, fields: Fields) -> Row:
        rows = [self._tagged("UserVm", each) for each in self.region.machines.values()]
        return self._page("virtualmachine", rows, fields)

    def _list_networks(self, fields: Fields) -> Row:
        return self._page("network", [self._tagged("Network", each) for each in self.region.networks.values()], fields)

    def _list_load_balancer_rules(self, fields: Fields) -> Row:
        return self._page("loadbalancerrule", [dict(each) for each in self.region.rules.values()], fields)

    def _list_load_balancer_rule_instances(self, fields: Fields) -> Row:
        if (id_ := fields["id"]) not in self.region.rules:
            raise missing(id_)
        rows = [self.region.machines[each] for each in self.region.assigned[id_]]
        return self._page("loadbalancerruleinstance", rows, {**fields, "id": ""})

    def _list_public_ip_addresses(self, fields: Fields) -> Row:
        every = fields.get("allocatedonly") == "false"
        rows = [each for each in self.region.addresses.values() if every or each["state"] != "Free"]
        rows = [each for each in rows if fields.get("ipaddress") in (None, each["ipaddress"])]
        rows = [each for each in rows if fields.get("state") in (None, each["state"])]
        return self._page("publicipaddress", [self._tagged("PublicIpAddress", each) for each in rows], fields)

    def _list_firewall_rules(self, fields: Fields) -> Row:
        wanted = fields.get("ipaddressid")
        rows = [each for each in self.region.firewall.values() if wanted in (None, each["ipaddressid"])]
        return self._page("firewallrule", [dict(each) for each in rows], fields)

    def _list_tags(self, fields: Fields) -> Row:
        rows = [
            {"key": key, "value": value, "resourcetype": kind, "resourceid": id_, "account": "kube"}
            for (kind, id_), tags in self.region.tags.items()
            for key, value in tags.items()
        ]
        names = ("key", "value", "resourcetype", "resourceid")
        rows = [row for row in rows if all(fields.get(name) in (None, row[name]) for name in names)]
        return self._page("tag", rows, fields)

    def _list_port_forwarding_rules(self, fields: Fields) -> Row:
        """Return nothing; only libcloud lists these rules."""
        return {}

    _list_ip_forwarding_rules = _list_port_forwarding_rules

    def _associate_ip_address(self, fields: Fields) -> Row:
        network = self.region.networks[fields["networkid"]]
        return _created(self.region.associate(fields.get("ipaddress", ""), network))

    def _disassociate_ip_address(self, fields: Fields) -> Row:
        return {"jobid": self.region.release(fields["id"])}

    def _create_load_balancer_rule(self, fields: Fields) -> Row:
        names = ("name", "description", "algorithm", "publicport", "privateport", "protocol", "publicipid", "networkid")
        given = {name: fields[name] for name in names if name in fields}
        return _created(self.region.create_rule(given | {"cidrlist": fields.get("cidrlist", "")}))

    def _update_load_balancer_rule(self, fields: Fields) -> Row:
        changed = {name: fields[name] for name in ("description", "algorithm", "protocol", "name") if name in fields}
        return {"jobid": self.region.update_rule(fields["id"], changed)}

    def _delete_load_balancer_rule(self, fields: Fields) -> Row:
        return {"jobid": self.region.delete_rule(fields["id"])}

    def _assign_to_load_balancer_rule(self, fields: Fields) -> Row:
        return {"jobid": self.region.assign(fields["id"], fields["virtualmachineids"].split(","))}

    def _remove_from_load_balancer_rule(self, fields: Fields) -> Row:
        return {"jobid": self.region.remove(fields["id"], fields["virtualmachineids"].split(","))}

    def _create_firewall_rule(self, fields: Fields) -> Row:
        given: Row = {name: fields[name] for name in ("ipaddressid", "protocol", "cidrlist")}
        return _created(self.region.open_port(given | {name: int(fields[name]) for name in ("startport", "endport")}))

    def _delete_firewall_rule(self, fields: Fields) -> Row:
        return {"jobid": self.region.close_port(fields["id"])}

    def _create_tags(self, fields: Fields) -> Row:
        tags = {key: value or "" for key, value in _map(fields, "tags")}
        return {"jobid": self.region.tag(fields["resourcetype"], fields["resourceids"].split(","), tags)}

    def _delete_tags(self, fields: Fields) -> Row:
        keys = [key for key, _ in _map(fields, "tags")]
        return {"jobid": self.region.untag(fields["resourcetype"], fields["resourceids"].split(","), keys)}

    def _query_async_job_result(self, fields: Fields) -> Row:
        if fields["jobid"] not in self.region.jobs:
            raise missing(fields["jobid"])
        return dict(self.region.jobs[fields["jobid"]])

    def _tagged(self, kind: str, row: Row) -> Row:
        tags = self.region.tags.get((kind, row["id"]), {})
        return row | {"tags": [{"key": key, "value": value} for key, value in tags.items()]}

    def _page(self, name: str, rows: list[Row], fields: Fields) -> Row:
        if id_ := fields.get("id"):
            rows = [row for row in rows if row["id"] == id_]
            if not rows:
                raise missing(id_)
        if part := fields.get("name", "").lower():
            rows = [row for row in rows if part in row["name"].lower()]
        size = int(fields.get("pagesize", self.page_limit))
        if size > 500:
            raise Refusal(431, "Page size can not exceed max allowed page size value: 500")
        size, number = min(size, self.page_limit), int(fields.get("page", 1))
        found = rows[(number - 1) * size : number * size]
        return {"count": len(rows), name: found} if rows else {}


def _created(ids: tuple[str, str]) -> Row:
    return {"id": ids[0], "jobid": ids[1]}


def _map(fields: Fields, name: str) -> Iterable[tuple[str, str | None]]:
    """Yield keys and values of a parameter of the form NAME[0].key, NAME[0].value."""
    for key, value in fields.items():
        if match := re.fullmatch(rf"{name}\[(\d+)\]\.key", key):
            yield value, fields.get(f"{name}[{match[1]}].value")


def _signature(fields: Fields, secret: str) -> str:
    """Compute the signature as the management server does."""
    encode: Callable[[str], str] = lambda text: urllib.parse.quote(text, safe="*").replace("~", "%7E")  # noqa: E731
    text = "&".join(f"{key}={encode(fields[key])}" for key in sorted(fields) if key != "signature").lower()
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()


def refused(command: str, refusal: Refusal) -> tuple[int, Any]:
    error = {"uuidList": [], "errorcode": refusal.code, "cserrorcode": 4350, "errortext": refusal.text}
    return refusal.code, {f"{command.lower()}response": error}


@contextlib.asynccontextmanager
async def running(region: Region, page_limit: int = 500) -> AsyncIterator[Face]:
    face = Face(region, page_limit)
    async with listening(web.route("*", "/client/api", face.handle)) as url:
        face.url = f"{url}/client/api"
        yield face
