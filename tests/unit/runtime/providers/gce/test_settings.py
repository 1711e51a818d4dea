# SPDX-License-Identifier: Apache-2.0
"""gce.conf of cloud-provider-gcp, unchanged: what it means, and every mistake with its line."""

from __future__ import annotations

import pytest

from ccm.cloud import ConfigError, ProviderConfig
from ccm.providers.gce import GceCloud
from ccm.providers.gce.settings import COMPUTE, IGNORED, METADATA, Settings

FULL = """\
[global]
token-url = nil
token-body = "{}"
project-id = kube-project
network-project-id = network-project
network-name = kube
subnetwork-name = projects/network-project/regions/europe-west1/subnetworks/kube
secondary-range-name = pods
node-tags = kube
node-tags = workers
node-instance-prefix = kube
multizone = true
regional = true
api-endpoint = https://www.googleapis.com/compute/v1/projects/
container-api-endpoint = https://container.googleapis.com/
local-zone = europe-west1-b
stack-type = IPV4_IPV6
alpha-features = NetworkTiers
"""


def parse(text: str, **environment: str) -> Settings:
    return Settings.parse(ProviderConfig(text, "gce.conf", environment))


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse(text)
    return raised.value.problems


def test_a_whole_file() -> None:
    found = parse(FULL)
    assert (found.common.project_id, found.common.local_zone) == ("kube-project", "europe-west1-b")
    assert found.common.multizone and found.common.regional and found.common.stack_type == "IPV4_IPV6"
    assert found.common.api_endpoint == "https://www.googleapis.com/compute/v1"
    named = {sentence.partition("[global] ")[2].partition(" has")[0] for sentence in found.ignored}
    assert named == {key for _, key in IGNORED} and len(found.ignored) == len(IGNORED) + 1


def test_no_file_means_this_machine() -> None:
    found = parse("")
    assert (found.common.project_id, found.common.local_zone, found.credentials_file) == ("", "", "")
    assert (found.common.api_endpoint, found.metadata) == (COMPUTE, METADATA)


def test_the_file_counts_before_the_variable() -> None:
    variable = {"GOOGLE_APPLICATION_CREDENTIALS": "/a.json", "GCE_METADATA_HOST": "127.0.0.1:80"}
    assert parse("", **variable).credentials_file == "/a.json" and parse("", **variable).metadata == "127.0.0.1:80"
    given = parse("[Runtime]\ncredentials-file = /b.json\n", **variable)
    assert given.credentials_file == "/b.json"
    assert list(GceCloud(ProviderConfig("", "gce.conf", variable)).watched_files) == ["/a.json"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("token-url = https://gke.example/token", "only nil is supported"),
        ("project-id = No Project", "expected the ID or the number of a project"),
        ("local-zone = europe", "expected the name of a zone"),
        ("multizone = perhaps", "expected true or false"),
        ("stack-type = IPV5", "expected one of IPV4, IPV6, IPV4_IPV6"),
        ("api-endpoint = https://user:hush@host/", "expected https://HOST/PATH, without credentials"),
        ("local-zones = europe-west1-b", "did you mean local-zone?"),
    ],
)
def test_a_mistake_has_its_line_and_no_value(line: str, problem: str) -> None:
    (found,) = problems(f"[global]\n{line}\n")
    assert found.startswith(f"gce.conf: line 2: [global] {line.partition(' ')[0]}: ") and problem in found
    assert "hush" not in found


def test_all_problems_are_found_at_once() -> None:
    found = problems("[global]\nproject-id = A\n[Runtime]\npage-size = 501\nrequest-timeout = 5\n[other]\n")
    assert [each.split(": ")[1] for each in found] == ["line 2", "line 4", "line 5", "line 6"]


@pytest.mark.parametrize("project", ["kube-project", "example.com:kube-project", "123456789012"])
def test_projects(project: str) -> None:
    assert parse(f"[global]\nproject-id = {project}\n").common.project_id == project
