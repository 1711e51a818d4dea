# SPDX-License-Identifier: Apache-2.0
"""Runs the real ansible-rulebook with this collection's rulebooks; by default, playbooks only record that they ran."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bed import prerequisites
from bed.progress import Progress
from tests.ports import free_port
from tools.packaging import environments

#: Seconds until a condition holds: a run starts a Java virtual machine and Ansible, maybe on a busy machine.
PATIENCE = 300
TOKEN = "a-token"
INVENTORY = {"kube_control_plane": {"hosts": {"cp-1": {}}}, "kube_node": {"hosts": {"w-1": {}, "w-2": {}}}}
#: An empty file for each run, whose name says what ran where. Its last part makes it unique.
RECORD = "{{ book }} {{ ansible_limit | default('without') }} {{ ansible_play_hosts | sort | join(',') }} "


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def environment() -> Path:
    prerequisites.ensure_java(Progress())
    return environments.of_events()


@pytest.fixture(scope="session")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with this collection, installed with a `site` and a `verify` that only record their runs."""
    folder = tmp_path_factory.mktemp("collections")
    root = folder / "ansible_collections" / "outoftree" / "ccm"
    shutil.copytree(environments.REPOSITORY / "extensions", root / "extensions")
    shutil.copy(environments.REPOSITORY / "galaxy.yml", root)
    (root / "playbooks").mkdir()
    for book in ("site", "verify"):
        (root / "playbooks" / f"{book}.yml").write_text(yaml.safe_dump([recording(book)]))
    return folder


def recording(book: str) -> dict[str, Any]:
    record = {"path": "{{ lookup('env', 'RUNS') }}", "prefix": RECORD}
    tasks = [{"ansible.builtin.tempfile": record, "run_once": True, "delegate_to": "localhost"}]
    hosts = "localhost:kube_control_plane:kube_node"
    local = {"hosts": hosts, "gather_facts": False, "connection": "local"}
    return {**local, "vars": {"book": book}, "tasks": tasks}


class Rulebook:
    """A running rulebook."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, runs: Path, log: Path) -> None:
        self._process, self._port, self._runs, self._log = process, port, runs, log

    def send(self, body: Any, token: str = TOKEN) -> int:
        """Post a message as Alertmanager does; return the status of the answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def listens(self) -> bool:
        try:
            return self.send(b"", token="none") == 401
        except OSError:
            return False

    def stop(self) -> None:
        end(self._process)

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def runs(self) -> list[str]:
        """Return the playbook, the limit and the hosts of each run, in the order of the runs."""
        files = sorted(self._runs.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return [file.name.rpartition(" ")[0] for file in files]

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert self._process.poll() is None and time.monotonic() < deadline, (self.runs, self.said)
            time.sleep(0.2)


@pytest.fixture
def start(environment: Path, collections: Path, tmp_path: Path) -> Iterator[Callable[..., Rulebook]]:
    """Yield a function that starts a rulebook with variables. `installed`: the folder with the collections."""
    started: list[subprocess.Popen[bytes]] = []
    runs, log = tmp_path / "runs", tmp_path / "log"
    runs.mkdir()
    recorded = tmp_path / "inventory.yml"
    recorded.write_text(yaml.safe_dump({"all": {"children": INVENTORY}}))

    def _start(name: str, inventory: Path = recorded, installed: Path = collections, **variables: Any) -> Rulebook:
        port = free_port()
        (tmp_path / "vars.yml").write_text(yaml.safe_dump({"ccm_eda_port": port, "ccm_eda_token": TOKEN} | variables))
        words = ["--rulebook", f"outoftree.ccm.{name}", "--inventory", str(inventory), "--vars", "vars.yml"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [environment / "bin" / "ansible-rulebook", *words],
                cwd=tmp_path,
                env=environments.variables(environment)
                | {"ANSIBLE_COLLECTIONS_PATH": str(installed), "HOME": str(tmp_path), "RUNS": str(runs)}
                | {"ANSIBLE_PIPELINING": "true"}  # as the page advises
                | ({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        return Rulebook(process, port, runs, log)

    yield _start
    for process in started:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
