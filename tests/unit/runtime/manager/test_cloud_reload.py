# SPDX-License-Identifier: Apache-2.0
"""How a cloud starts, and fails for long (W25). A changed --cloud-config takes effect without a restart (W27)."""

import asyncio
import contextlib
import time

import pytest
from prometheus_client import REGISTRY

from ccm.base.start_error import StartError
from ccm.cloud import Cloud, ConfigError, Transient, Unauthorized, registry
from ccm.manager import cloud_reload, room_settings
from ccm.manager.cloud_reload import CloudReloader, CloudSettings, build
from ccm.options.command_line import parse


class Scripted(Cloud):
    """A cloud that does what its configuration says: "good", "bad", "untagged", "refused" or "down".

    A second word makes configurations differ.
    """

    name = "scripted"
    started = 0
    has_cluster_id = True

    def __init__(self, config):
        super().__init__(config)
        self.kind = config.text.split()[0]
        if self.kind == "bad":
            raise ConfigError(["line 1: is bad", "line 2: is no better"])
        if self.kind == "untagged":
            self.has_cluster_id = False

    async def start(self):
        Scripted.started += 1
        if self.kind == "refused":
            raise Unauthorized("the token is unknown")
        if self.kind == "down":
            raise Transient("connection refused")


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    monkeypatch.setattr(registry, "names", lambda: ["scripted"])
    monkeypatch.setattr(registry, "load", lambda name: Scripted)
    Scripted.started = 0


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cloud.conf"
    path.write_text("good 1")
    return path


def options(file, *more):
    return room_settings.cloud(parse(["--cloud-provider=scripted", f"--cloud-config={file}", *more]))


class Told(list):
    def __call__(self, type, reason, message):
        self.append((type, reason, message))


@contextlib.asynccontextmanager
async def watching(file, notice=None):
    keeper = CloudReloader(options(file), notice=Told() if notice is None else notice, every=0.01)
    await keeper.start()
    task = asyncio.create_task(keeper.watch())
    try:
        yield keeper
    finally:
        task.cancel()
        await keeper.gateway.close()


async def until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


def count(result):
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "ccm_cloud_config_reloads_total" and sample.labels["result"] == result
    )


async def test_a_changed_file_is_taken_into_use(file):
    told, before = Told(), count("success")
    async with watching(file, told) as keeper:
        old = keeper.gateway.cloud
        file.write_text("good 2")
        await until(lambda: keeper.gateway.cloud is not old, "replaced")
        assert keeper.gateway.cloud.config.text == "good 2"
    assert count("success") == before + 1
    assert [(type, reason) for type, reason, _ in told] == [("Normal", "CloudConfigReloaded")]


async def test_a_secrets_volume_swaps_links(tmp_path):
    """As the kubelet does it: the file is a link through ..data, and a rename replaces ..data."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "cloud.conf").write_text(f"good {number}")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "cloud.conf").symlink_to("..data/cloud.conf")
    async with watching(tmp_path / "cloud.conf") as keeper:
        (tmp_path / "..new").symlink_to("..2")
        (tmp_path / "..new").rename(tmp_path / "..data")
        await until(lambda: keeper.gateway.cloud.config.text == "good 2", "replaced")


async def test_a_file_that_is_only_touched_changes_nothing(file):
    async with watching(file) as keeper:
        old = keeper.gateway.cloud
        for _ in range(3):
            file.write_text("good 1")
            await asyncio.sleep(0.03)
        assert keeper.gateway.cloud is old and Scripted.started == 1


@pytest.mark.parametrize(
    ("text", "result", "message"),
    [
        ("bad", "invalid", "line 1: is bad; line 2: is no better"),
        ("refused", "refused", "the token is unknown"),
        ("untagged", "invalid", "--allow-untagged-cloud"),
    ],
)
async def test_a_file_that_cannot_be_used_is_told_once_and_kept_out(file, text, result, message):
    told, before = Told(), count(result)
    async with watching(file, told) as keeper:
        old = keeper.gateway.cloud
        file.write_text(text)
        await until(lambda: told, "told")
        await asyncio.sleep(0.1)
        assert keeper.gateway.cloud is old
        assert keeper.standing().reason == ""
        assert count(result) == before + 1
        [(type, reason, said)] = told
        assert (type, reason) == ("Warning", "CloudConfigRefused") and message in said
        file.write_text("good 2")
        await until(lambda: keeper.gateway.cloud is not old, "the corrected one is taken")


async def test_a_file_that_vanishes_for_a_while(file):
    told, before = Told(), count("unreadable")
    async with watching(file, told) as keeper:
        file.unlink()
        await until(lambda: told, "told")
        await asyncio.sleep(0.05)
        assert count("unreadable") == before + 1
        file.write_text("good 2")
        await until(lambda: keeper.gateway.cloud.config.text == "good 2", "replaced")


async def test_a_cloud_that_is_down_is_asked_again_with_the_new_file(file, monkeypatch):
    before = count("unavailable")
    async with watching(file) as keeper:
        file.write_text("down")
        await until(lambda: count("unavailable") >= before + 2, "tried twice")
        assert keeper.gateway.cloud.config.text == "good 1"
        monkeypatch.setattr(Scripted, "start", Cloud.start)
        await until(lambda: keeper.gateway.cloud.config.text == "down", "replaced")


async def test_a_key_that_the_cloud_learns_of_later(file, monkeypatch):
    """Clouds may accept new credentials only later: the refusal is reported once, and the file is tried again."""
    told, before = Told(), count("refused")
    async with watching(file, told) as keeper:
        file.write_text("refused")
        await until(lambda: Scripted.started >= 4, "tried again")
        assert keeper.gateway.cloud.config.text == "good 1"
        monkeypatch.setattr(Scripted, "start", Cloud.start)
        await until(lambda: keeper.gateway.cloud.config.text == "refused", "replaced")
    assert count("refused") == before + 1
    assert [reason for _, reason, _ in told] == ["CloudConfigRefused", "CloudConfigReloaded"]


async def test_a_wrong_address_is_corrected_while_the_start_waits(file):
    file.write_text("down")
    keeper = CloudReloader(options(file), every=0.01)
    starting = asyncio.create_task(keeper.start())
    await until(lambda: Scripted.started, "tried")
    await asyncio.sleep(0)
    assert "connection refused" in keeper.standing().reason
    file.write_text("good")
    await asyncio.wait_for(starting, 60)
    assert keeper.standing().reason == ""
    await keeper.gateway.close()


async def test_a_refusal_at_start_ends_it(file):
    file.write_text("refused")
    keeper = CloudReloader(options(file))
    with pytest.raises(StartError, match=r"rejects the credentials of .*cloud\.conf: the token is unknown"):
        await keeper.start()


async def test_all_problems_at_start(file):
    file.write_text("bad")
    with pytest.raises(StartError, match="line 1: is bad\n  - line 2: is no better"):
        CloudReloader(options(file))
    with pytest.raises(ConfigError, match="--allow-untagged-cloud"):
        build(options(file), "untagged")
    assert build(options(file, "--allow-untagged-cloud"), "untagged").kind == "untagged"


async def test_W25_a_cloud_that_fails_for_long_makes_unready(file, monkeypatch):
    """Upstream's checks do not ask the cloud. A short failure changes nothing, as other replicas use the same cloud.
    """
    async with watching(file) as keeper:

        async def down():
            raise Transient("503")

        with pytest.raises(Transient):
            await keeper.gateway.call("a.x", down)
        assert keeper.standing().reason == ""
        monkeypatch.setattr(cloud_reload, "SILENT_AFTER", 0.05)
        await until(lambda: keeper.standing().reason, "unready")
        assert "503" in keeper.standing().reason
        await keeper.gateway.call("a.x", lambda: asyncio.sleep(0))
        assert keeper.standing().reason == ""


# --- files beside the configuration ---


@pytest.fixture
def token(tmp_path, monkeypatch):
    """Return the path of a mounted token file that the provider asks to watch."""
    path = tmp_path / "token"
    path.write_text("first")
    monkeypatch.setattr(Scripted, "watched_files", (str(path),), raising=False)
    return path


async def test_a_changed_file_that_the_cloud_watches_makes_a_new_cloud(file, token):
    async with watching(file, told := Told()) as keeper:
        first = keeper.gateway.cloud
        token.write_text("second")
        await until(lambda: keeper.gateway.cloud is not first, "the token changed and nothing happened")
        await asyncio.sleep(0.1)
        assert Scripted.started == 2
        assert [reason for _, reason, _ in told] == ["CloudConfigReloaded"]


async def test_a_file_that_goes_and_comes_back_is_noticed(file, token):
    async with watching(file) as keeper:
        token.unlink()
        await until(lambda: Scripted.started == 2, "the token went and nothing happened")
        token.write_text("again")
        await until(lambda: Scripted.started == 3, "the token came and nothing happened")
        assert keeper.gateway.cloud.kind == "good"


async def test_files_are_followed_without_a_configuration(token, monkeypatch):
    """Watched files take effect also if all other settings come from the environment."""
    monkeypatch.setattr(Scripted, "__init__", lambda self, config: Cloud.__init__(self, config))
    monkeypatch.setattr(Scripted, "kind", "good", raising=False)
    keeper = CloudReloader(CloudSettings("scripted"), every=0.01)
    await keeper.start()
    task = asyncio.create_task(keeper.watch())
    try:
        token.write_text("second")
        await until(lambda: Scripted.started == 2, "the token changed and nothing happened")
    finally:
        task.cancel()
        await keeper.gateway.close()


async def test_without_files_and_configuration_nothing_is_watched(monkeypatch):
    monkeypatch.setattr(Scripted, "__init__", lambda self, config: Cloud.__init__(self, config))
    monkeypatch.setattr(Scripted, "kind", "good", raising=False)
    keeper = CloudReloader(CloudSettings("scripted"), every=0.01)
    await asyncio.wait_for(keeper.watch(), 60)
    await keeper.gateway.close()
