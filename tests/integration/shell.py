# SPDX-License-Identifier: Apache-2.0
"""A shell like that of a page's reader: with this project's programs, kubectl, and a kubeconfig."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from .cluster import ApiServer, binaries


async def shell(script: str, folder: Path, apiserver: ApiServer | None = None, *, seconds: float = 480) -> str:
    """Run a script with bash in a folder that is also its home. Return what it prints. Fail if one of its commands
    fails."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "K8S_AUTH_", "PYTEST"))
    }
    kept.pop("KUBECONFIG", None)
    path = f"{Path(sys.executable).parent}:{binaries()}:{os.environ['PATH']}"
    given = {"KUBECONFIG": str(apiserver.kubeconfig())} if apiserver else {}
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"set -euo pipefail\n{script}"),
        cwd=folder,
        env=kept | {"PATH": path, "HOME": str(folder)} | given,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            said = (await process.communicate())[0].decode()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    assert process.returncode == 0, f"{script}\nended with {process.returncode}:\n{said}"
    return said
