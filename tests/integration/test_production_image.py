# SPDX-License-Identifier: Apache-2.0
"""The content of the controller's image, in the archive that nodes import (`make images`).

The image is small. It has no shell, and no part of the simulated cloud, whose fault API needs no credentials.
"""

from __future__ import annotations

import json
import re
import ssl
import tarfile
from pathlib import Path

import pytest

#: The limit for the uncompressed image, in bytes.
LARGEST = 120_000_000
ARCHIVE = Path(__file__).parents[2] / "build/images/outoftree-ccm-0.1.0.tar"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """Return the files of all layers, by path."""
    assert ARCHIVE.exists(), f"there is no {ARCHIVE}: make images"
    found: dict[str, bytes] = {}
    with tarfile.open(ARCHIVE) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        (image,) = json.loads(manifest.read())
        for name in image["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                for member in layer:
                    if member.isfile():
                        content = layer.extractfile(member)
                        assert content is not None
                        found[member.name] = content.read()
    return found


def test_there_is_a_controller_and_no_simulated_cloud(files: dict[str, bytes]) -> None:
    packages = {path.split("/site-packages/")[1] for path in files if "/site-packages/" in path}
    assert {"ccm/cli.py", "ccm/providers/sim/__init__.py"} <= packages
    assert not [path for path in packages if "simcloud" in path or path.startswith("pyroute2/")]


def test_no_program_of_ours_serves_a_fault_api(files: dict[str, bytes]) -> None:
    ours = {path: text for path, text in files.items() if "/site-packages/ccm/" in path}
    assert ours and not [path for path, text in ours.items() if b"/admin/" in text]


def test_there_are_the_services_of_aws_that_the_provider_calls_and_few_others(files: dict[str, bytes]) -> None:
    services = {path.split("/botocore/data/")[1].split("/")[0] for path in files if "/botocore/data/" in path}
    assert {"ec2", "elb", "elbv2", "sts"} <= services
    assert {"endpoints.json", "partitions.json", "sdk-default-configuration.json"} <= services
    assert len(services) < 15
    assert not [path for path in files if "/openstack/tests/" in path]


def test_it_is_small(files: dict[str, bytes]) -> None:
    assert ARCHIVE.stat().st_size < LARGEST, f"{ARCHIVE.stat().st_size / 1e6:.0f} MB"


def test_there_is_no_shell_and_no_installer(files: dict[str, bytes]) -> None:
    programs = {Path(path).name for path in files if re.search(r"(^|/)s?bin/", path)}
    assert {"ccm", "kubectl-ccm"} <= programs
    assert not programs & {"sh", "dash", "bash", "busybox", "apt", "dpkg", "perl"}
    assert not [path for path in files if re.search(r"-packages/(pip|setuptools)/|/ensurepip/", path)]


def test_it_trusts_the_certificates_of_the_distribution_alone(files: dict[str, bytes]) -> None:
    """The build uses the machine's certificates, which may include an intercepting proxy's. The image must not."""
    text = files["etc/ssl/certs/ca-certificates.crt"].decode()
    context = ssl.create_default_context(cadata=text)
    assert len(context.get_ca_certs()) > 100
    names = {value for ca in context.get_ca_certs() for rdn in ca["subject"] for _, value in rdn}
    assert any("ISRG Root X1" in name for name in names)
    assert not [path for path in files if path.startswith("etc/ssl/") and not path.endswith("ca-certificates.crt")]


def test_our_modules_have_source_and_byte_code(files: dict[str, bytes]) -> None:
    assert next(path for path in files if path.endswith("/site-packages/ccm/cli.py"))
    assert next(path for path in files if re.search(r"/site-packages/ccm/__pycache__/cli\.cpython-\d+\.pyc$", path))
    assert next(path for path in files if path.endswith("/site-packages/aiohttp/client.pyc"))
