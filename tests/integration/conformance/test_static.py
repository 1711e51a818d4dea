# SPDX-License-Identifier: Apache-2.0
"""The provider `static` passes the conformance kit, except for cases in which a file cannot do what a cloud does."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from ccm.cloud import ProviderConfig
from ccm.conformance import CASES, Case, NotRun, Outcome, Subject, Trouble, World, check
from ccm.providers.static import StaticCloud

#: Cases that make no sense for a file -> words of the reason that the kit must give.
NOT_FOR_A_FILE = {
    "configuration.no_secret_is_shown": "nothing that looks like a secret",
    "instances.an_ambiguous_name_is_a_conflict": "one name twice",
    "failures.an_answer_cut_short_is_transient": "every answer is truncated",
    "failures.refused_credentials_are_unauthorized": "credentials",
    "instances.a_lost_tag_changes_no_instance": "lose its tags",
    "failures.a_listing_cut_short_shows": "second half",
    "failures.what_a_short_listing_lacks_is_not_gone": "second half",
    "failures.a_rate_limit_says_what_pauses": "too many calls",
    "failures.a_rate_limit_says_when_to_come_back": "too many calls",
    "failures.a_rate_limit_is_not_waited_for": "too many calls",
    "failures.it_recovers": "every answer is truncated",
    "load_balancers.a_lost_answer_makes_no_second_one": "its answer is lost",
    "load_balancers.members_have_the_addresses_that_are_given": "the listeners of a load balancer",
    "load_balancers.every_port_is_served": "only allocates addresses",
    "load_balancers.each_protocol_is_served_or_refused": "only allocates addresses",
    "load_balancers.source_ranges_are_applied_or_refused": "only allocates addresses",
    "load_balancers.session_affinity_is_applied_or_refused": "only allocates addresses",
    "load_balancers.a_health_check_node_port_is_used_or_refused": "only allocates addresses",
    "load_balancers.a_port_without_node_port_is_refused": "only allocates addresses",
    "load_balancers.each_ip_family_is_served_or_reported": "only allocates addresses",
    "load_balancers.a_range_of_ipv6_does_not_open_ipv4": "only allocates addresses",
    "load_balancers.a_load_balancer_without_targets_is_reported": "only allocates addresses",
    "load_balancers.a_warning_is_in_the_answer_of_the_write": "only allocates addresses",
    "load_balancers.a_setting_that_comes_too_late_is_refused_or_reported": "only allocates addresses",
    "later_pages.a_failure_among_instances_is_transient": "several pages",
    "later_pages.all_load_balancers_are_listed": "in a page of the cloud",
    "later_pages.a_failure_among_load_balancers_is_transient": "implements them itself",
    "load_balancers.nothing_is_waited_for": "not ready for a minute",
    "load_balancers.what_the_cloud_refuses_to_one_service_concerns_it_alone": "implements them itself",
    "load_balancers.one_that_failed_is_reported_and_replaced": "to fail",
    "load_balancers.one_that_failed_is_deleted": "to fail",
    "load_balancers.a_half_made_one_is_completed": "implements them itself",
    "load_balancers.a_half_made_one_is_deleted": "implements them itself",
    "load_balancers.a_server_error_is_transient": "implements them itself",
    "load_balancers.a_proxys_404_is_not_not_found": "implements them itself",
    "load_balancers.an_answer_cut_short_is_transient": "implements them itself",
    "load_balancers.a_rate_limit_says_when_to_come_back": "implements them itself",
    "load_balancers.no_answer_is_transient": "implements them itself",
}


class FileWorld(World):
    """A file as the conformance kit's `World`."""

    asking = frozenset({"instances"})

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        text = self._file.read_text()
        match kind:
            case Trouble.SERVER_ERROR:
                self._file.unlink()
            case Trouble.PROXY_PAGE:
                self._file.write_text("<html><body>404 Not Found</body></html>\n")
            case Trouble.HANG:  # a FIFO: opening it waits for a writer
                self._file.unlink()
                os.mkfifo(self._file)
            case _:
                raise NotRun(kind.value)
        try:
            yield
        finally:
            if kind is Trouble.HANG:
                with contextlib.suppress(OSError):
                    os.close(os.open(self._file, os.O_WRONLY | os.O_NONBLOCK))
            self._file.unlink(missing_ok=True)
            self._file.write_text(text)

    async def create_instance(self, name: str) -> None:
        machines = yaml.safe_load(self._file.read_text())
        if any(machine["name"] == name for machine in machines):
            raise NotRun("a file with one name twice is refused as a whole")
        taken = {address for machine in machines for address in machine["addresses"]}
        free = next(address for n in range(1, 255) if (address := f"10.0.1.{n}") not in taken)
        self._write([*machines, {"name": name, "id": str(uuid.uuid4()), "addresses": [free]}])

    async def delete_instance(self, provider_id: str) -> None:
        id_ = provider_id.rpartition("/")[2]
        self._write([each for each in yaml.safe_load(self._file.read_text()) if each.get("id", each["name"]) != id_])

    async def stop_instance(self, provider_id: str) -> None:
        machines = yaml.safe_load(self._file.read_text())
        for machine in machines:
            if machine.get("id") == provider_id.rpartition("/")[2]:
                machine["state"] = "shutdown"
        self._write(machines)

    def _write(self, machines: list[dict[str, object]]) -> None:
        self._file.write_text(yaml.safe_dump(machines))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_static_passes(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "machines.yaml"
    file.write_text(yaml.safe_dump([{"name": f"worker-{n}", "addresses": [f"10.0.0.{n}"]} for n in range(1, 5)]))
    conf = f"cluster: cellar\nmachines_file: {file}\nload_balancer_addresses: [192.0.2.0/28]\n"
    config = ProviderConfig(conf, "cloud.conf")
    result = await check(case, Subject("static", StaticCloud, config, allow_writes=True, world=FileWorld(file)))
    if case.needs not in ("", "instances", "load_balancers"):
        assert result.outcome is Outcome.NOT_APPLICABLE
    elif case.name in NOT_FOR_A_FILE:
        assert result.outcome is Outcome.NOT_RUN and NOT_FOR_A_FILE[case.name] in result.detail
    else:
        assert result.outcome is Outcome.PASSED, result.detail
