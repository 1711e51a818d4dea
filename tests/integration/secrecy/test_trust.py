# SPDX-License-Identifier: Apache-2.0
"""ccm_runtime_ca_bundle reaches every client library: each provider calls a cloud whose CA is only in the bundle."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ccm_runtime_role import rendered

from ..cluster import ApiServer
from ..runtime.support import CLUSTER_CIDR
from .accounts import ACCOUNTS
from .quoting_cloud import running

#: Time limit of the command in seconds. It ends long before, with and without trust.
PATIENCE = 600.0


def variables() -> list[str]:
    """Return the environment variables that the role points at the CA bundle."""
    (daemonset,) = rendered("daemonset.yaml.j2", ccm_runtime_ca_bundle="PEM")
    container: dict[str, Any] = daemonset["spec"]["template"]["spec"]["containers"][0]
    return [each["name"] for each in container["env"] if str(each.get("value")).endswith("/ca-bundle.crt")]


async def asks(name: str, apiserver: ApiServer, folder: Path, with_bundle: bool) -> bool:
    """Return whether a request of `ccm doctor` reaches the cloud. `folder`: an empty one, for files."""
    account = ACCOUNTS[name]
    async with running(folder, tls=True) as cloud:
        conf = folder / "cloud.conf"
        conf.write_text(account.conf(cloud.url, folder).replace('insecure-flag = "1"', ""))
        trusted = dict.fromkeys(variables(), str(folder / "ca.crt")) if with_bundle else {}
        flags: dict[str, Any] = {"cloud-provider": name, "cloud-config": conf, "kubeconfig": apiserver.kubeconfig()}
        flags["cluster-cidr"] = CLUSTER_CIDR
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ccm.cli", "doctor", *(f"--{key}={text}" for key, text in flags.items())),
            env={**os.environ, **account.environment(cloud.url), **trusted},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(PATIENCE):
            while not cloud.asked and process.returncode is None:
                await asyncio.sleep(0.05)
        if process.returncode is None:
            process.kill()
            await process.wait()
        return bool(cloud.asked)


@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("name", sorted(name for name, account in ACCOUNTS.items() if account.asks))
async def test_a_cloud_with_a_private_ca_is_trusted_by_the_bundle_alone(
    name: str, apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = await asyncio.gather(
        asks(name, apiserver, tmp_path_factory.mktemp("with"), with_bundle=True),
        asks(name, apiserver, tmp_path_factory.mktemp("without"), with_bundle=False),
    )
    assert found == [True, False]
