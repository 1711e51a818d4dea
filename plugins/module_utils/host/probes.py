# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes of the components of one host: their health endpoints, and the serving certificate of a kubelet.

It does I/O for the modules that run on managed nodes, with only the standard library of Python 3.8. It decides nothing. C(host.processes)
identifies the processes whose arguments it takes, C(host.files) opens files, and it connects only to addresses of this host.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
import time
from typing import Any, Callable, Dict, List, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, machine, settings as _settings

PKI = "/etc/kubernetes/pki"

#: Number of failed probes after which a component counts as unhealthy before its change, and the seconds between them.
BASELINE_ATTEMPTS, BASELINE_PAUSE = 5, 1

#: Default port of the API server of k3s and RKE2.
RANCHER_PORT = 6443

#: Components with their default secure port and health path.
ENDPOINTS: Dict[str, Tuple[int, str]] = {
    "kube-apiserver": (6443, "/readyz"),
    "kube-controller-manager": (10257, "/healthz"),
    "kube-scheduler": (10259, "/healthz"),
}


def kubelet_serving(argv: List[str], texts: List[str]) -> Dict[str, Any]:
    """Return facts about a kubelet's serving certificate: C(bootstrap), C(names), C(not_after), C(problem).

    With C(bootstrap), the kubelet itself is asked, because a file does not show what the process uses; otherwise the other values are empty.
    C(texts) are its KubeletConfiguration and drop-ins.
    """
    def setting(key: str, flag: str, default: str) -> str:
        values = [match.group(1) for text in texts
                  for match in re.finditer(r"^[ \t]*[\"']?{0}[\"']?:[ \t]*[\"']?([^\s\"'#]+)".format(key), text, re.MULTILINE)]
        return _settings.option(argv, flag) or (values[-1] if values else default)

    bare = "--rotate-server-certificates" in argv
    bootstrap = (bare or setting("serverTLSBootstrap", "rotate-server-certificates", "false") == "true") and not setting(
        "tlsCertFile", "tls-cert-file", "")
    result: Dict[str, Any] = {"bootstrap": bootstrap, "names": [], "not_after": "", "problem": ""}
    if bootstrap:
        authority = setting("clientCAFile", "client-ca-file", "/etc/kubernetes/pki/ca.crt")
        port = _settings.option(argv, "port") or next(iter(re.findall(r"^port:[ \t]*([0-9]+)", "\n".join(texts), re.MULTILINE)), "10250")
        address = _settings.option(argv, "address") or next(iter(re.findall(r"^address:[ \t]*[\"']?([^\s\"'#]+)", "\n".join(texts), re.MULTILINE)), "")
        result.update(serving_certificate(address, port, authority))
    return result


def serving_certificate(address: str, port: str, authority: str) -> Dict[str, Any]:
    """Return C(names) and C(not_after) of the certificate that is served at this address and port, or else only a C(problem)."""
    try:
        context = _trusting(authority)
        context.check_hostname = False  # plan.serving compares the names with the Node's addresses
        with socket.create_connection(_endpoint(address, port), timeout=5) as raw, context.wrap_socket(raw) as connection:
            served: Dict[str, Any] = connection.getpeercert() or {}
    except ssl.SSLCertVerificationError as exc:
        return {"problem": "its serving certificate is not signed by the cluster's CA {0}: {1}".format(authority, exc.verify_message)}
    except ssl.SSLError as exc:
        return {"problem": "it has no serving certificate yet ({0})".format(exc.reason)}
    except (OSError, ValueError) as exc:
        return {"problem": "its port {0} does not answer, or {1} cannot be read: {2}".format(port, authority, exc)}
    return {"names": [value for unused, value in served.get("subjectAltName", ())],
            "not_after": machine.timestamp(ssl.cert_time_to_seconds(served["notAfter"]))}


# -- health ----------------------------------------------------------------------------------------------------------


def _endpoint(address: str, port: str) -> Tuple[str, int]:
    """Return the address and port of a component of this host. Raises ValueError for an invalid port, and for an address of another host."""
    address = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(address, address)
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("{0!r} is not a port".format(port[:50]))
    if not machine.is_local(address):
        raise ValueError("{0!r} is not an address of this host, so it is not probed".format(address[:50]))
    return address, int(port)


def _trusting(authority: str) -> ssl.SSLContext:
    """Return a context that trusts only the certificates in one file, which root must control. Raises OSError and ValueError."""
    content = files.read(authority)
    if content is None:
        raise ValueError("there is no {0}".format(authority))
    context = ssl.create_default_context(cadata=content.decode("utf-8", "replace"))
    # This flag is the default since Python 3.13. It requires key identifiers, which CAs of kubeadm up to 1.18 do not have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def baseline(probe: Callable[[], str]) -> str:
    """Return '' as soon as one of at most BASELINE_ATTEMPTS calls of C(probe) returns '', otherwise what the last call returned."""
    ill = probe()
    for unused in range(BASELINE_ATTEMPTS - 1):
        if not ill:
            break
        time.sleep(BASELINE_PAUSE)
        ill = probe()
    return ill


def kubelet_health(settings: Dict[str, str]) -> str:
    """Return '' if the kubelet's /healthz answers 200, otherwise what is wrong.

    C(healthzPort: 0) turns that endpoint off. The kubelet's API has the same endpoint for authenticated users. It refuses other users (401, 403), which also
    shows that the kubelet serves.
    """
    if settings["healthz_port"] == "0":
        return _kubelet_api_health(settings)
    try:
        connection = http.client.HTTPConnection(*_endpoint(settings["healthz_address"], settings["healthz_port"]), timeout=3)
    except ValueError as exc:
        return "its /healthz cannot be probed: {0}".format(exc)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        body = response.read(300).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as exc:
        return "its /healthz on port {0}: {1}".format(settings["healthz_port"], exc)
    finally:
        connection.close()
    return "" if response.status == 200 else "its /healthz answers {0}: {1}".format(response.status, body)


def _kubelet_api_health(settings: Dict[str, str]) -> str:
    port = settings["port"]
    try:
        # Its certificate may be self-signed. The request contains no secrets.
        status, body = _https(_endpoint(settings["address"], port), "/healthz", ssl._create_unverified_context())
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "its /healthz on port {0}: {1}".format(port, exc)
    return "" if status in (200, 401, 403) else "its /healthz on port {0} answers {1}: {2}".format(port, status, body.strip()[-300:])


def component_health(component: str, argv: List[str]) -> str:
    """Return '' if the instance on this host answers 200 on its health path, otherwise what is wrong.

    kube-apiserver must serve the certificate in its own file. If that file cannot be read, the certificate is checked against the cluster's CA
    with the name that every kubeadm certificate has. The other components create self-signed certificates at each start, which cannot be
    checked. The request contains no secrets.
    """
    number, path = ENDPOINTS[component]
    port = _settings.option(argv, "secure-port", str(number))
    try:
        if component == "kube-apiserver":
            status, body = api_server_answer(argv, path)
        else:
            where = _endpoint(_settings.option(argv, "bind-address", ""), port)
            status, body = _https(where, path, ssl._create_unverified_context())
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "{0} on port {1}: {2}".format(path, port, exc)
    return "" if status == 200 else "{0} on port {1} answers {2}: {3}".format(path, port, status, body.strip()[-300:])


def api_server_answer(argv: List[str], path: str) -> Tuple[int, str]:
    """Return the status and the body of a GET from the API server of this host. If it refuses anonymous users, repeat the GET with the client
    certificate that the API server itself uses for kubelets.

    Raises OSError, ValueError and http.client.HTTPException.
    """
    where = _endpoint(_settings.option(argv, "bind-address", ""), _settings.option(argv, "secure-port", str(ENDPOINTS["kube-apiserver"][0])))
    context = ssl._create_unverified_context()
    serving = _settings.option(argv, "tls-cert-file")
    if not _first_certificate(serving):
        context, serving = _trusting(_settings.option(argv, "client-ca-file", PKI + "/ca.crt")), ""
    status, body = _https(where, path, context, serving)
    if status in (401, 403):
        certificate = _settings.option(argv, "kubelet-client-certificate", PKI + "/apiserver-kubelet-client.crt")
        key = _settings.option(argv, "kubelet-client-key", PKI + "/apiserver-kubelet-client.key")
        context.load_cert_chain(files.resolve(certificate), files.resolve(key))
        status, body = _https(where, path, context, serving)
    return status, body


def rancher_health(unit: str, data_directory: str, port: int = RANCHER_PORT) -> str:
    """Return '' if the kubelet of k3s or RKE2 on this host is healthy and, on a server, its API server is ready; otherwise what is wrong."""
    ill = kubelet_health(_settings.KUBELET_DEFAULTS)
    if ill or unit.replace(".service", "").endswith("-agent"):
        return ill
    tls = os.path.join(data_directory, "server", "tls")
    try:
        context = _trusting(os.path.join(tls, "server-ca.crt"))
        certificate, key = (files.resolve(os.path.join(tls, "client-admin" + end)) for end in (".crt", ".key"))
        context.load_cert_chain(certificate, key)
        status, body = _https(_endpoint("", str(port)), "/readyz", context)
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "/readyz on port {0}: {1}".format(port, exc)
    return "" if status == 200 else "/readyz on port {0} answers {1}: {2}".format(port, status, body.strip()[-300:])


def _first_certificate(path: str) -> bytes:
    """Return a file's first certificate, in DER; b'' if there is none, or if anyone but root controls the file."""
    return first_certificate((files.read_text(path) if path else None) or "")


def first_certificate(text: str) -> bytes:
    """Return the first certificate in a text, in DER; b'' if there is none."""
    match = re.search(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL)
    try:
        return ssl.PEM_cert_to_DER_cert(match.group(0)) if match else b""
    except ValueError:
        return b""


def _https(where: Tuple[str, int], path: str, context: ssl.SSLContext, serving: str = "") -> Tuple[int, str]:
    """Return the status and the body of a GET. With C(serving), the server must have the certificate in that file.

    Raises OSError, http.client.HTTPException, and ValueError if the server has another certificate.
    """
    raw = socket.create_connection(where, timeout=5)
    try:
        connection = http.client.HTTPSConnection(where[0], where[1], timeout=5, context=context)
        # With a name, the server could answer with a certificate for that name (--tls-sni-cert-key).
        connection.sock = context.wrap_socket(raw, server_hostname=None if serving else "kubernetes")
        try:
            if serving and connection.sock.getpeercert(True) != _first_certificate(serving):
                raise ValueError("its certificate is not the one in {0}".format(serving))
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read(4000).decode("utf-8", "replace")
        finally:
            connection.close()
    finally:
        raw.close()
