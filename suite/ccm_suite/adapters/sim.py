# SPDX-License-Identifier: Apache-2.0
"""Runs the simulated cloud of outoftree.ccm as a process: `ccm` must be on the PATH, or CCM_SIM names the command."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cloud import Cloud, Fault, LoadBalancer, Machine, Route, Settings
from ..control_plane import free_port
from ..errors import SuiteError

PROJECT, OTHER, REGION = "suite", "other", "north"
#: The adapter's calls have this in their query, so that faults and counts leave them out.
OURS = "by=suite"
NOT_OURS = "^(?!.*by=suite)"
#: Seconds within which the cloud must answer, even on a busy machine.
PATIENCE = 60

_LISTING = {"path": NOT_OURS, "operation": "instances.list"}
_ALL = {"path": NOT_OURS}
_RULES: Mapping[Fault, Mapping[str, Any]] = {
    Fault.TIMEOUT: {"action": "timeout", "match": _ALL},
    Fault.HANG_UP: {"action": "hang_up", "match": _ALL},
    Fault.UNAUTHORIZED: {"action": "status", "status": 401, "code": "unauthorized", "match": _ALL},
    Fault.FORBIDDEN: {"action": "status", "status": 403, "code": "forbidden", "match": _ALL},
    Fault.THROTTLED: {"action": "status", "status": 429, "code": "rate_limited", "match": _ALL},
    Fault.INTERNAL: {"action": "status", "status": 500, "match": _ALL},
    Fault.UNAVAILABLE: {"action": "status", "status": 503, "code": "unavailable", "match": _ALL},
    Fault.GATEWAY_PAGE: {"action": "status", "status": 502, "body": "html", "match": _ALL},
    Fault.EMPTY_LISTING: {"action": "empty_list", "match": _LISTING},
    Fault.HALF_LISTING: {"action": "short_list", "match": _LISTING},
    Fault.LATE_LISTING: {"action": "stale", "seconds": 60, "match": _LISTING},
}


def _token(project: str) -> str:
    return f"token-of-{project}"


class SimulatedCloud(Cloud):
    """The simulated cloud. Variables for the controller's command: {cloud_config}."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._numbers = itertools.count(1)

    def start(self, folder: Path) -> Settings:
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        project = {
            "name": PROJECT,
            "token": _token(PROJECT),
            "region": REGION,
            "load_balancer_addresses": "198.18.0.0/16",
        }
        other = {**project, "name": OTHER, "token": _token(OTHER), "load_balancer_addresses": "198.19.0.0/16"}
        (folder / "sim.yaml").write_text(json.dumps({"projects": [project, other]}))
        self._conf = folder / "cloud.conf"
        self._configure(PROJECT)
        command = [*shlex.split(os.environ.get("CCM_SIM", "ccm sim")), f"--listen=127.0.0.1:{port}"]
        command += [f"--config={folder}/sim.yaml", "--log-level=warning"]
        with (folder / "sim.log").open("wb") as log:
            try:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            except OSError as error:
                raise SuiteError(f"the simulated cloud: {command[0]}: {error.strerror}; set CCM_SIM") from error
        self._await(folder / "sim.log")
        return Settings({"cloud_config": str(self._conf)})

    def _configure(self, project: str) -> None:
        """Write the controller's configuration. Its limit of calls is high, because this cloud has none."""
        limits = {"calls_per_second": 1000, "burst": 1000}
        self._conf.write_text(
            json.dumps({"endpoint": self._url, "project": project, "token": _token(project), **limits})
        )

    def _await(self, log: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"{self._url}/healthz", timeout=5):
                    return
            except (urllib.error.URLError, OSError) as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise SuiteError(
                        f"the simulated cloud does not start ({error}): {log.read_text()[-500:]}"
                    ) from error
                time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def create_machine(self, name: str) -> Machine:
        number = next(self._numbers)
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        body = {
            "name": name,
            "type": "sim.small",
            "zone": f"{REGION}-{'abc'[number % 3]}",
            "addresses": [{"type": "InternalIP", "address": address}],
        }
        made = self._call("POST", "instances", body)
        return Machine(
            id=made["id"],
            name=name,
            addresses=(("InternalIP", address),),
            provider_id=f"sim://{made['region']}/{made['id']}",
            zone=made["zone"],
            region=made["region"],
            type=made["type"],
        )

    def delete_machine(self, machine: Machine) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call("DELETE", f"instances/{machine.id}")

    def stop_machine(self, machine: Machine) -> None:
        self._call("PATCH", f"instances/{machine.id}", {"state": "stopped"})

    def start_machine(self, machine: Machine) -> None:
        self._call("PATCH", f"instances/{machine.id}", {"state": "running"})

    def rename_machine(self, machine: Machine, name: str) -> None:
        self._call("PATCH", f"instances/{machine.id}", {"name": name})

    def load_balancers(self) -> Sequence[LoadBalancer]:
        return [
            LoadBalancer(
                id=row["id"],
                address=row["ip"],
                ports=frozenset((port["protocol"], port["port"], port["node_port"]) for port in row["ports"]),
                members=frozenset(target["address"] for target in row["targets"]),
                source_ranges=frozenset(row["source_ranges"]),
                health_check_port=(row["health_check"] or {}).get("node_port", 0),
            )
            for row in self._all("load-balancers")
            if row["state"] != "deleting"
        ]

    def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        self._call("DELETE", f"load-balancers/{balancer.id}")

    def routes(self) -> Sequence[Route]:
        return [Route(row["destination"], row["instance_id"]) for row in self._all("routes")]

    @contextlib.contextmanager
    def broken(self, fault: Fault) -> Iterator[None]:
        with self._rule(_RULES[fault]):
            yield

    @contextlib.contextmanager
    def refusing_changes(self) -> Iterator[None]:
        rule = {"action": "status", "status": 400, "code": "invalid", "message": "the ports are refused"}
        with self._rule({**rule, "match": {"path": NOT_OURS, "operation": "load_balancers.update"}}):
            yield

    @contextlib.contextmanager
    def failing(self, balancers: Sequence[LoadBalancer]) -> Iterator[None]:
        which = "|".join(each.id for each in balancers)
        with self._rule({"action": "status", "status": 500, "match": {"path": f"{NOT_OURS}.*/({which})"}}):
            yield

    @contextlib.contextmanager
    def other_project(self) -> Iterator[None]:
        self._configure(OTHER)
        try:
            yield
        finally:
            self._configure(PROJECT)

    @contextlib.contextmanager
    def _rule(self, rule: Mapping[str, Any]) -> Iterator[None]:
        (number,) = self._request("POST", "/admin/faults", rule)["ids"]
        try:
            yield
        finally:
            self._request("DELETE", f"/admin/faults/{number}")

    def calls(self) -> Mapping[str, int]:
        theirs = [row for row in self._request("GET", "/admin/journal")["items"] if OURS not in row["path"]]
        writes = sum(row["write"] and not row["operation"].startswith("tokens.") for row in theirs)
        return {"read": len(theirs) - writes, "write": writes}

    def _all(self, kind: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        token: str | None = ""
        while token is not None:
            page = self._call("GET", kind, query={"page_token": token} if token else {})
            rows += page["items"]
            token = page["next_page_token"]
        return rows

    def _call(self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> Any:
        more = f"&{urllib.parse.urlencode(query)}" if query else ""
        return self._request(method, f"/v1/projects/{PROJECT}/{path}?{OURS}{more}", body)

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the answer. Raises FileNotFoundError for a 404, SuiteError for any other 4xx or
        5xx."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {_token(PROJECT)}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise FileNotFoundError(path) from error
            raise SuiteError(f"the simulated cloud: {method} {path}: {error.read().decode()[:300]}") from error
        return json.loads(text) if text else None
