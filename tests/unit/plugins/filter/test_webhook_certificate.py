# SPDX-License-Identifier: Apache-2.0
"""The webhooks' certificate is kept while it is good. When it is replaced, the former certificate stays trusted."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import ssl
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.filter import webhook_certificate as module
from ansible_collections.outoftree.ccm.plugins.filter.webhook_certificate import LIFETIME, webhook_certificate
from cryptography import x509

DAY = datetime.timedelta(days=1)


def text(data: dict[str, str], name: str) -> bytes:
    return base64.b64decode(data[name])


def of_age(age: datetime.timedelta, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the data of a Secret whose certificate was created `age` ago."""
    create = module._create
    monkeypatch.setattr(module, "_create", lambda now: create(now - age))
    made: dict[str, str] = webhook_certificate({})["data"]
    monkeypatch.setattr(module, "_create", create)
    return made


def test_a_new_certificate_is_for_a_server_on_loopback_and_signs_nothing() -> None:
    made = webhook_certificate({})
    assert made["created"] is True
    certificate = x509.load_pem_x509_certificate(text(made["data"], "tls.crt"))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.ExtendedKeyUsageOID.SERVER_AUTH]
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == LIFETIME + DAY / 24
    assert text(made["data"], "ca.crt") == text(made["data"], "tls.crt")
    assert b"PRIVATE KEY" in text(made["data"], "tls.key") and b"PRIVATE" not in text(made["data"], "ca.crt")


@pytest.mark.parametrize("age", [datetime.timedelta(0), LIFETIME / 2 - 2 * DAY])
def test_a_young_certificate_is_kept(age: datetime.timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    data = of_age(age, monkeypatch)
    assert webhook_certificate(data) == {"data": data, "created": False}


def test_in_its_second_half_it_is_replaced_and_stays_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = of_age(LIFETIME / 2 + DAY, monkeypatch)
    made = webhook_certificate(data)
    assert made["created"] is True and made["data"]["tls.key"] != data["tls.key"]
    assert text(made["data"], "ca.crt") == text(made["data"], "tls.crt") + text(data, "tls.crt")
    assert webhook_certificate(made["data"]) == {"data": made["data"], "created": False}
    trust = ssl.create_default_context(cadata=text(made["data"], "ca.crt").decode())
    assert trust.cert_store_stats()["x509"] == 2


def other(**changed: bytes | None) -> dict[str, Any]:
    names = {"crt": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
    data = dict(webhook_certificate({})["data"])
    for name, value in changed.items():
        data[names[name]] = None if value is None else base64.b64encode(value).decode()
    return data


@pytest.mark.parametrize(
    "secret",
    [
        None,
        {},
        {"tls.crt": "", "tls.key": "", "ca.crt": ""},
        {"tls.crt": "%%%", "tls.key": "%%%", "ca.crt": "%%%"},
        other(crt=b"no certificate"),
        other(key=b"no key"),
        other(key=text(webhook_certificate({})["data"], "tls.key")),
        other(ca=text(webhook_certificate({})["data"], "ca.crt")),
        other(ca=None),
    ],
    ids=["no-secret", "no-data", "empty", "no-base64", "no-certificate", "no-key", "another-key", "another-ca", "null"],
)
def test_what_cannot_be_served_is_replaced_and_not_trusted(secret: Any) -> None:
    made = webhook_certificate(secret)
    assert made["created"] is True
    assert text(made["data"], "ca.crt") == text(made["data"], "tls.crt")


def test_an_expired_certificate_is_not_trusted_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made = webhook_certificate(of_age(LIFETIME + DAY, monkeypatch))
    assert made["created"] is True and text(made["data"], "ca.crt") == text(made["data"], "tls.crt")
