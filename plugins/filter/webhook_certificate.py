# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: webhook_certificate
short_description: Keep or create the self-signed certificate of the controller's webhooks
version_added: 1.0.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Returns the data of the Secret from which the controller serves its webhooks on 127.0.0.1. A usable certificate in the first half of
    its ten years is kept. Otherwise the filter creates a key and a certificate.
  - The certificate signs itself and nothing else, so there is no authority whose key could be stolen.
  - The API servers also trust the former certificate while it is valid, because the Pods serve it until their kubelets have updated the
    Secret's files.
positional: _input
options:
  _input:
    description: The C(data) of the Secret as it is. Empty if there is none.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Keep the certificate, or create one
  ansible.builtin.set_fact:
    certificate: "{{ secret.resources | map(attribute='data') | first | default({}) | outoftree.ccm.webhook_certificate }}"
  no_log: true
"""

RETURN = r"""
_value:
  description: C(data), the data of the Secret; C(created), whether the certificate is new.
  type: dict
"""

import base64
import binascii
import datetime
import ipaddress

from ansible.errors import AnsibleFilterError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError as error:  # ansible-core requires it on the Ansible controller
    MISSING = error
else:
    MISSING = None

LIFETIME = datetime.timedelta(days=3650)
ADDRESS = "127.0.0.1"
NAME = "cloud-controller-manager-webhook"


def webhook_certificate(data):
    """Return the data of the Secret, and whether its certificate is new. Raises AnsibleFilterError without the library cryptography."""
    if MISSING is not None:
        raise AnsibleFilterError("webhook_certificate requires the Python library cryptography on the Ansible controller: {0}".format(MISSING))
    data = data or {}
    now = datetime.datetime.now(datetime.timezone.utc)
    former = _usable(data, now)
    if former is not None and now < _start(former) + LIFETIME / 2:
        return {"data": dict(data), "created": False}
    certificate, key = _create(now)
    bundle = certificate + (_pem(former) if former is not None else b"")
    made = {"tls.crt": certificate, "tls.key": key, "ca.crt": bundle}
    return {"data": {name: base64.b64encode(text).decode() for name, text in made.items()}, "created": True}


def _usable(data, now):
    """Return the Secret's certificate if it is valid now and for the webhook's address, matches the Secret's key, and is in C(ca.crt); None otherwise."""
    try:
        text = {name: base64.b64decode(data[name], validate=True) for name in ("tls.crt", "tls.key", "ca.crt")}
        certificate = x509.load_pem_x509_certificate(text["tls.crt"])
        key = serialization.load_pem_private_key(text["tls.key"], None)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (KeyError, TypeError, ValueError, binascii.Error, x509.ExtensionNotFound):
        return None
    addresses = names.get_values_for_type(x509.IPAddress)
    if certificate.public_key() != key.public_key() or _pem(certificate) not in text["ca.crt"]:
        return None
    return certificate if ipaddress.ip_address(ADDRESS) in addresses and _start(certificate) <= now < _end(certificate) else None


def _create(now):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    # The clock of a control plane may be behind.
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + LIFETIME)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(ADDRESS))]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return _pem(builder.sign(key, hashes.SHA256())), private


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def _start(certificate):
    """Return when a certificate becomes valid, in UTC. Older versions of the library report it without a time zone."""
    moment = getattr(certificate, "not_valid_before_utc", None)
    return moment or certificate.not_valid_before.replace(tzinfo=datetime.timezone.utc)


def _end(certificate):
    moment = getattr(certificate, "not_valid_after_utc", None)
    return moment or certificate.not_valid_after.replace(tzinfo=datetime.timezone.utc)


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"webhook_certificate": webhook_certificate}
