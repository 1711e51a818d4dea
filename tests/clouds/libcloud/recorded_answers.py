# SPDX-License-Identifier: Apache-2.0
"""Runs each driver of the provider `libcloud` over the answers that Apache Libcloud itself was tested with.

The library's package contains the answers (`libcloud/test`), and none is copied here. They are answers of the real
clouds from the time when somebody wrote the driver, and some were shortened by hand. So they show that the driver, our
table and the form of an answer fit together. They do not show that the cloud still answers like this.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ccm.cloud import Instance, ProviderConfig
from ccm.providers.libcloud import instance_rules
from ccm.providers.libcloud.api import DriverCalls, library_class
from ccm.providers.libcloud.instance_rules import Listing
from ccm.providers.libcloud.settings import Settings


@dataclass(frozen=True)
class Recording:
    """Recorded answers of a driver. `conf`: the configuration without the driver. `answers`: a module below
    libcloud.test.compute, and its class. `path`: a part of the URLs that we request, and what replaces
    it so that a recorded answer fits; "" if nothing is replaced."""

    conf: str
    answers: tuple[str, str]
    path: tuple[str, str] = ("", "")


TOKEN = "token: recorded-token"
AZURE = (
    "azure:///subscriptions/99999999-9999-9999-9999-999999999999/resourceGroups/000000/providers/Microsoft.Compute/"
    "virtualMachines"
)
RECORDINGS: Mapping[str, Recording] = {
    "azure": Recording(
        "tenant_id: 77777777-7777-7777-7777-777777777777\nsubscription_id: '99999999'\nclient_id: id\n"
        "client_secret: recorded-secret",
        ("test_azure_arm", "AzureMockHttp"),
    ),
    "cloudscale": Recording(TOKEN, ("test_cloudscale", "CloudscaleMockHttp")),
    "cloudstack": Recording(
        "api_key: recorded-key\nsecret_key: recorded-secret\napi_url: https://api.example/test/path",
        ("test_cloudstack", "CloudStackMockHttp"),
    ),
    "digitalocean": Recording(TOKEN, ("test_digitalocean_v2", "DigitalOceanComputeMockHttp")),
    "exoscale": Recording(
        "api_key: recorded-key\napi_secret: recorded-secret",
        ("test_cloudstack", "CloudStackMockHttp"),
        path=("/compute", "/test/path"),
    ),
    "gce": Recording("service_account: a@b.example\nproject: project_name", ("test_gce", "GCEMockHttp")),
    "linode": Recording(TOKEN, ("test_linode_v4", "LinodeMockHttpV4")),
    "openstack": Recording(
        "username: user\npassword: recorded-secret\nauth_url: https://auth.example\nproject: project\n"
        "domain: test_domain\nproject_domain_id: test_tenant_domain_id\nregion: regionOne",
        ("test_openstack", "OpenStack_2_0_MockHttp"),
        path=("/v2/9c4693dce56b493b9b83197d900f7fba", "/v2/1337"),
    ),
    "scaleway": Recording(
        "access_key: recorded-key\nsecret_key: recorded-secret\nzones: [fr-par-1]",
        ("test_scaleway", "ScalewayMockHttp"),
        path=("/instance/v1/zones/fr-par-1/servers", "/servers"),
    ),
    "upcloud": Recording("username: user\npassword: recorded-secret", ("test_upcloud", "UpcloudMockHttp")),
    "vultr": Recording(TOKEN, ("test_vultr_v2", "VultrMockHttpV2")),
}


def settings(name: str) -> Settings:
    """Return the configuration that fits the recorded answers."""
    conf = f"driver: {name}\n{RECORDINGS[name].conf}\n"
    if name == "gce":
        conf += "private_key: |\n" + "".join(f"  {line}\n" for line in _key().splitlines())
    return Settings.parse(ProviderConfig(conf, "recorded.yaml", {}))


def listing(name: str, change: Callable[[Any], Any] = lambda response: response) -> tuple[Settings, Listing]:
    """Return the configuration and what the driver lists. `change`: replaces each recorded answer (a
    `requests.Response`) before the driver reads it."""
    found = settings(name)
    with _recorded(name, change):
        return found, DriverCalls(found, {}).list_machines((found.zones or ("",))[0])


def instances(name: str) -> list[Instance]:
    found, listed = listing(name)
    return instance_rules.instances(found.driver, listed, found.arguments, ())


@contextlib.contextmanager
def _recorded(name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    module = importlib.import_module("libcloud.test.file_fixtures")
    _settle_secrets()
    recording, cls = RECORDINGS[name], library_class(settings(name).driver)
    module = importlib.import_module(f"libcloud.test.compute.{recording.answers[0]}")
    base = getattr(module, recording.answers[1])
    ours, theirs = recording.path

    identity = importlib.import_module("libcloud.test.common.test_openstack_identity").OpenStackIdentity_3_0_MockHttp
    parents = (base, identity) if name == "openstack" else (base,)

    class Recorded(*parents):  # type: ignore[misc]
        type = None

        def _get_request(self, method: str, url: str, body: Any = None, headers: Any = None) -> Any:
            if ours:
                url = url.replace(ours, theirs, 1)
            return super()._get_request(method, url, body, headers)

        def request(self, *args: Any, **kwargs: Any) -> None:
            super().request(*args, **kwargs)
            self.response = change(self.response)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(cls.connectionCls, "conn_class", Recorded))
        if name == "gce":
            google = importlib.import_module("libcloud.common.google")
            answers = importlib.import_module("libcloud.test.common.test_google").GoogleAuthMockHttp
            stack.enter_context(mock.patch.object(google.GoogleBaseAuthConnection, "conn_class", answers))
        if name == "openstack":  # the recorded catalog is older than names of services
            stack.enter_context(mock.patch.object(cls.connectionCls, "service_name", None))
        yield


def _settle_secrets() -> None:
    """Make the file with accounts importable for the library's tests, because it has another name in the package."""
    name = "libcloud.test.secrets"
    if name not in sys.modules:
        path = Path(str(importlib.import_module("libcloud.test").__file__)).with_name("secrets.py-dist")
        loader = importlib.machinery.SourceFileLoader(name, str(path))
        spec = importlib.util.spec_from_loader(name, loader)
        assert spec is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        loader.exec_module(sys.modules[name])


def _key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(form, kind, serialization.NoEncryption()).decode()
