# SPDX-License-Identifier: Apache-2.0
"""The node's unit bed-cni writes a CNI configuration with the Pods' networks."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bed import paths

SCRIPT = paths.BED / "node" / "rootfs" / "usr" / "local" / "sbin" / "bed-cni"


def run(folder: Path, *answers: str) -> dict[str, Any]:
    """Run bed-cni; return the `ipam` that it wrote. kubectl answers with the Node's podCIDRs, ip records its calls."""
    conf = folder / "10-bed.conflist"
    programs = {
        "kubectl": "".join(f"echo '{answer}'\n" for answer in answers),
        "ip": f'echo "$@" >>{folder}/ip.log\n',
    }
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in programs.items():
        (folder / "bin" / name).write_text("#!/bin/sh\n" + text)
        (folder / "bin" / name).chmod(0o755)
    script = SCRIPT.read_text().replace("/etc/cni/net.d/10-bed.conflist", str(conf))
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], env=environment, check=True, timeout=280)
    ipam: dict[str, Any] = json.loads(conf.read_text())["plugins"][0]["ipam"]
    return ipam


@pytest.mark.parametrize(
    ("cidrs", "ranges", "routes"),
    [
        ("10.244.1.0/24", ["10.244.1.0/24"], ["0.0.0.0/0"]),
        ("10.244.1.0/24 fd00:10:244:1::/64", ["10.244.1.0/24", "fd00:10:244:1::/64"], ["0.0.0.0/0", "::/0"]),
    ],
)
def test_each_family_has_a_range_and_a_default_route(
    tmp_path: Path, cidrs: str, ranges: list[str], routes: list[str]
) -> None:
    ipam = run(tmp_path, "", cidrs)
    assert ipam["ranges"] == [[{"subnet": cidr}] for cidr in ranges]
    assert ipam["routes"] == [{"dst": destination} for destination in routes]


def test_the_bridge_goes_only_with_its_old_range(tmp_path: Path) -> None:
    run(tmp_path, "10.244.1.0/24", "10.244.1.0/24")
    assert not (tmp_path / "ip.log").exists()
    assert run(tmp_path, "10.244.7.0/24")["ranges"] == [[{"subnet": "10.244.7.0/24"}]]
    assert (tmp_path / "ip.log").read_text() == "link delete cni0\n"
