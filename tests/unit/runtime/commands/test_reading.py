# SPDX-License-Identifier: Apache-2.0
"""Commands cannot write, whatever their code does. Also: where commands take their flags from."""

import pytest

from ccm import cli
from ccm.cloud import Cloud, NotFound, ProviderConfig, RateLimited
from ccm.commands import completion
from ccm.commands.asking.question_flags import own_arguments
from ccm.commands.asking.reading import ReadingClient, ReadingGateway, WriteRefused
from ccm.engine.api_credentials import Access
from ccm.gateway import gateway

NODE = "/api/v1/nodes/w1"


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.patch(NODE, {}),
        lambda client: client.create("/api/v1/nodes", {}),
        lambda client: client.delete(NODE),
        lambda client: client.ask("/apis/authentication.k8s.io/v1/tokenreviews", {}, dict),
    ],
)
async def test_the_client_refuses_to_write(write):
    client = ReadingClient(Access("http://127.0.0.1:1"))
    with pytest.raises(WriteRefused):
        await write(client)
    await client.close()


@pytest.mark.parametrize("operation", ["load_balancers.ensure", "load_balancers.delete", "routes.create", "x.y"])
async def test_the_gateway_refuses_to_write(operation):
    called = []

    async def write():
        called.append(operation)

    with pytest.raises(WriteRefused):
        await ReadingGateway(Cloud(ProviderConfig())).call(operation, write)
    assert called == []


#: The calls of the contract that commands make.
CLOUD_READS = (
    "cloud.start",
    "instances.list",
    "instances.get",
    "load_balancers.list",
    "load_balancers.get",
    "load_balancers.deviations",
    "load_balancers.kept",
    "routes.list",
    "volumes.labels",
    "quotas.list",
)


@pytest.mark.parametrize("operation", CLOUD_READS)
async def test_the_gateway_lets_commands_read(operation):
    """The gateway counts no read as a write: an abandoned write keeps the Lease from being released."""

    async def read():
        raise NotFound("this is the cloud's answer")

    assert not gateway.writes(operation)
    with pytest.raises(NotFound):
        await ReadingGateway(Cloud(ProviderConfig())).call(operation, read)


def test_what_is_kept_is_about_no_service():
    assert "load_balancers.kept".endswith(gateway._ABOUT_ALL)


@pytest.mark.parametrize(("scope", "others"), [("all", 0), ("group", 1)])
async def test_after_the_cloud_throttled_nobody_waits_for_the_end_of_the_pause(scope, others):
    class Throttled(Cloud):
        name = "throttled"

    asking, made = ReadingGateway(Throttled(ProviderConfig())), []

    async def throttled():
        raise RateLimited("429", retry_after=3600.0, scope=scope)

    async def other():
        made.append(1)
        return []

    for _ in range(2):
        with pytest.raises(RateLimited):
            await asking.call("instances.list", throttled)
    if others:
        await asking.call("routes.list", other)
    else:
        with pytest.raises(RateLimited):
            await asking.call("routes.list", other)
    assert len(made) == others


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            ["/opt/ccm/bin/python", "/opt/ccm/bin/ccm", "--cloud-provider=sim", "--v=2"],
            ["--cloud-provider=sim", "--v=2"],
        ),
        (["/sbin/init"], []),
        (["/usr/bin/ccm", "plan"], []),
        (["/bin/other", "--cloud-provider=aws"], []),
    ],
)
def test_in_the_controllers_pod_its_flags_are_the_defaults(command, expected, tmp_path):
    process = tmp_path / "cmdline"
    process.write_bytes(b"".join(each.encode() + b"\0" for each in command))
    assert own_arguments(process) == expected
    assert own_arguments(tmp_path / "none") == []


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_completion_names_commands_and_flags(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(text in script for text in ("explain", "doctor", "cluster-cidr", "openstack"))
    assert "tls-cipher-suites" in script  # a flag of the controller itself


def test_without_its_package_completion_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(completion.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["completion", "bash"]) == 1
    assert "outoftree-ccm[completion]" in capsys.readouterr().err
