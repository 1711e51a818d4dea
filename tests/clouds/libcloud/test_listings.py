# SPDX-License-Identifier: Apache-2.0
"""Listings over HTTP: pages, the number of requests, secrets in files, and what is logged at --v=9."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from ccm.cloud import ConfigError, InstanceRef, NotFound, Transient, Unauthorized
from ccm.conformance import Trouble
from ccm.providers.libcloud import LibcloudCloud

from .droplets import PAGE, TOKEN, DropletWorld, config, running


@pytest.mark.parametrize("trouble", [Trouble.LATER_PAGE, Trouble.SHORT_LISTING, Trouble.PROXY_PAGE, Trouble.CUT_ANSWER])
async def test_a_listing_that_is_not_whole_is_no_listing(trouble: Trouble) -> None:
    async with running(2 * PAGE + 1) as (droplets, url):
        cloud = LibcloudCloud(config(url))
        await cloud.start()
        assert len((await cloud.instances.list_page(None)).instances) == 2 * PAGE + 1
        async with DropletWorld(droplets).trouble(trouble):
            with pytest.raises(Transient):
                await cloud.instances.list_page(None)
            with pytest.raises(Transient):
                await cloud.instances.get(InstanceRef("worker-0"))
        await cloud.close()


async def test_questions_that_come_together_share_a_listing() -> None:
    async with running(2 * PAGE) as (droplets, url):
        cloud = LibcloudCloud(config(url))
        await cloud.start()
        before = len(droplets.calls())
        found = await asyncio.gather(*(cloud.instances.get(InstanceRef(f"worker-{each}")) for each in range(2 * PAGE)))
        assert [each.name for each in found] == [f"worker-{each}" for each in range(2 * PAGE)]
        assert len(droplets.calls(before)) == 2
        await cloud.close()


async def test_a_machine_that_is_gone_is_not_found_by_a_listing_after_it_went() -> None:
    async with running() as (droplets, url):
        cloud = LibcloudCloud(config(url))
        await cloud.start()
        known = await cloud.instances.get(InstanceRef("worker-0"))
        droplets.rows.pop(int(known.provider_id.rpartition("/")[2]))
        with pytest.raises(NotFound):
            await cloud.instances.get(InstanceRef("worker-0", known.provider_id))
        await cloud.close()


async def test_a_token_from_a_file(tmp_path) -> None:
    async with running() as (_, url):
        conf = config(url)
        path = tmp_path / "token"
        text = conf.text.replace(f"token: {TOKEN}", f"token_file: {path}")
        cloud = LibcloudCloud(type(conf)(text, conf.source, {}))
        assert list(cloud.watched_files) == [str(path)]
        with pytest.raises(ConfigError, match=r"token_file: cannot read .*: No such file"):
            await cloud.start()
        path.write_text("\n")
        with pytest.raises(ConfigError, match=r"contains no token"):
            await cloud.start()
        path.write_text(f"{TOKEN}\n")
        await cloud.start()
        assert len((await cloud.instances.list_page(None)).instances) == 5
        await cloud.close()


@pytest.mark.parametrize("trouble", [None, Trouble.SERVER_ERROR, Trouble.UNAUTHORIZED, Trouble.RATE_LIMITED])
async def test_no_log_line_and_no_error_has_the_token(trouble, caplog) -> None:
    """With the status 401 or 503, the stand-in quotes the token in its message."""
    caplog.set_level(logging.DEBUG)
    async with running() as (droplets, url):
        cloud = LibcloudCloud(config(url))
        world = DropletWorld(droplets)
        async with world.trouble(trouble) if trouble else contextlib.nullcontext():
            try:
                await cloud.start()
            except (Unauthorized, Transient) as error:
                assert TOKEN not in str(error)
            except Exception as error:
                assert trouble is Trouble.RATE_LIMITED and TOKEN not in str(error)
        await cloud.close()
    assert TOKEN not in caplog.text


async def test_what_the_library_would_write_and_repeat_is_switched_off(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LIBCLOUD_DEBUG", str(tmp_path / "debug"))
    monkeypatch.setenv("LIBCLOUD_RETRY_FAILED_HTTP_REQUESTS", "1")
    async with running() as (droplets, url):
        cloud = LibcloudCloud(config(url))
        async with DropletWorld(droplets).trouble(Trouble.RATE_LIMITED):
            with pytest.raises(Exception, match="too many requests"):
                await cloud.start()
        assert len(droplets.calls()) == 1
        await cloud.close()
    assert not (tmp_path / "debug").exists()
