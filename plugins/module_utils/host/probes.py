# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the components of one host answer: their health endpoints, and the serving certificate of a kubelet.

Stdlib-only I/O for the modules that run on managed nodes (Python 3.8). It decides nothing. Arguments are those of processes that
C(host.processes) identified; C(host.files) opens files; only addresses of this host are asked.
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

#: How often a probe is asked before a component counts as ill before its change, and the seconds between.
BASELINE_ATTEMPTS, BASELINE_PAUSE = 5, 1

#: The API server's port of k3s and RKE2, when nothing else is said.
RANCHER_PORT = 6443

#: Components with their default secure port and health path.
ENDPOINTS: Dict[str, Tuple[int, str]] = {
    "kube-apiserver": (6443, "/readyz"),
    "kube-controller-manager": (10257, "/healthz"),
    "kube-scheduler": (10259, "/healthz"),
}


def kubelet_serving(argv: List[str], texts: List[str]) -> Dict[str, Any]:
    """Return what a kubelet serves whose certificate the cluster signs: C(bootstrap), C(names), C(not_after), C(problem).

    It is asked itself: a file says nothing about what the process uses. C(texts) are its KubeletConfiguration and drop-ins.
    """
    def setting(key: str, flag: str, default: str) -> str:
        found = [match.group(1) for text in texts
                 for match in re.finditer(r"^[ \t]*[\"']?{0}[\"']?:[ \t]*[\"']?([^\s\"'#]+)".format(key), text, re.MULTILINE)]
        return _settings.option(argv, flag) or (found[-1] if found else default)

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
    """Return the names and the end of the certificate that is served there, and what is wrong with it."""
    try:
        context = _trusting(authority)
        context.check_hostname = False  # the names are what is asked for
        with socket.create_connection(_endpoint(address, port), timeout=5) as raw, context.wrap_socket(raw) as connection:
            served: Dict[str, Any] = connection.getpeercert() or {}
    except ssl.SSLCertVerificationError as exc:
        return {"problem": "its serving certificate is not of the cluster's authority {0}: {1}".format(authority, exc.verify_message)}
    except ssl.SSLError as exc:
        return {"problem": "it has no serving certificate yet ({0})".format(exc.reason)}
    except (OSError, ValueError) as exc:
        return {"problem": "its port {0} does not answer, or {1} cannot be read: {2}".format(port, authority, exc)}
    return {"names": [value for unused, value in served.get("subjectAltName", ())],
            "not_after": machine.timestamp(ssl.cert_time_to_seconds(served["notAfter"]))}


# -- health ----------------------------------------------------------------------------------------------------------


def _endpoint(address: str, port: str) -> Tuple[str, int]:
    """Return where a component of this host listens; raises ValueError for what cannot be this host."""
    address = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(address, address)
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("{0!r} is no port".format(port[:50]))
    if not machine.is_local(address):
        raise ValueError("{0!r} is no address of this host, so it is not asked".format(address[:50]))
    return address, int(port)


def _trusting(authority: str) -> ssl.SSLContext:
    """Return a context that trusts the certificates in one file of root's alone. Raises OSError and ValueError."""
    content = files.read(authority)
    if content is None:
        raise ValueError("there is no {0}".format(authority))
    context = ssl.create_default_context(cadata=content.decode("utf-8", "replace"))
    # Python 3.13 made it the default: it wants key identifiers, which authorities of kubeadm up to 1.18 do not have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def baseline(probe: Callable[[], str]) -> str:
    """Return what a probe says of a component that nobody has changed yet; one failure in between says nothing."""
    ill = probe()
    for unused in range(BASELINE_ATTEMPTS - 1):
        if not ill:
            break
        time.sleep(BASELINE_PAUSE)
        ill = probe()
    return ill


def kubelet_health(settings: Dict[str, str]) -> str:
    """Return '' when the kubelet's /healthz answers 200, else what it said instead.

    C(healthzPort: 0) turns that endpoint off. The kubelet's API serves the same to whom it knows, and refuses others (401, 403), which
    only a kubelet that serves does.
    """
    if settings["healthz_port"] == "0":
        return _kubelet_api_health(settings)
    try:
        connection = http.client.HTTPConnection(*_endpoint(settings["healthz_address"], settings["healthz_port"]), timeout=3)
    except ValueError as exc:
        return "its /healthz cannot be asked: {0}".format(exc)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        body = response.read(300).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as exc:
        return "its /healthz on port {0}: {1}".format(settings["healthz_port"], exc)
    finally:
        connection.close()
    return "" if response.status == 200 else "its /healthz says {0}: {1}".format(response.status, body)


def _kubelet_api_health(settings: Dict[str, str]) -> str:
    port = settings["port"]
    try:
        # Its certificate may be self-signed; nothing secret is sent.
        status, body = _https(_endpoint(settings["address"], port), "/healthz", ssl._create_unverified_context())
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "its /healthz on port {0}: {1}".format(port, exc)
    return "" if status in (200, 401, 403) else "its /healthz on port {0} says {1}: {2}".format(port, status, body.strip()[-300:])


def component_health(component: str, argv: List[str]) -> str:
    """Return '' when the instance on this host serves its health path, else what it said instead.

    kube-apiserver has to serve the certificate in its own file. Where that cannot be read, its certificate is checked against the
    cluster's CA under the name every kubeadm certificate has. The others serve self-signed certificates made at each start: there
    is nothing to check them against, and nothing secret is sent.
    """
    number, path = ENDPOINTS[component]
    port = _settings.option(argv, "secure-port", str(number))
    try:
        where = _endpoint(_settings.option(argv, "bind-address", ""), port)
        context = ssl._create_unverified_context()
        serving = ""
        if component == "kube-apiserver":
            serving = _settings.option(argv, "tls-cert-file")
            if not _first_certificate(serving):
                context, serving = _trusting(_settings.option(argv, "client-ca-file", PKI + "/ca.crt")), ""
        status, body = _https(where, path, context, serving)
        if status in (401, 403) and component == "kube-apiserver":
            certificate = _settings.option(argv, "kubelet-client-certificate", PKI + "/apiserver-kubelet-client.crt")
            key = _settings.option(argv, "kubelet-client-key", PKI + "/apiserver-kubelet-client.key")
            context.load_cert_chain(files.resolve(certificate), files.resolve(key))
            status, body = _https(where, path, context, serving)
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "{0} on port {1}: {2}".format(path, port, exc)
    return "" if status == 200 else "{0} on port {1} says {2}: {3}".format(path, port, status, body.strip()[-300:])


def rancher_health(unit: str, data_directory: str, port: int = RANCHER_PORT) -> str:
    """Return '' when the kubelet of k3s or RKE2 on this host is healthy, and on a server its API server is ready."""
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
    return "" if status == 200 else "/readyz on port {0} says {1}: {2}".format(port, status, body.strip()[-300:])


def _first_certificate(path: str) -> bytes:
    """Return the first certificate of a file in DER, b'' when there is none that root alone decides about."""
    text = files.read_text(path) if path else None
    match = re.search(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text or "", re.DOTALL)
    try:
        return ssl.PEM_cert_to_DER_cert(match.group(0)) if match else b""
    except ValueError:
        return b""


def _https(where: Tuple[str, int], path: str, context: ssl.SSLContext, serving: str = "") -> Tuple[int, str]:
    """Return the status and the body of a GET; with C(serving) only from whoever has the certificate in that file."""
    raw = socket.create_connection(where, timeout=5)
    try:
        connection = http.client.HTTPSConnection(where[0], where[1], timeout=5, context=context)
        # With a name it might answer with a certificate for that name (--tls-sni-cert-key).
        connection.sock = context.wrap_socket(raw, server_hostname=None if serving else "kubernetes")
        try:
            if serving and connection.sock.getpeercert(True) != _first_certificate(serving):
                raise ValueError("it serves another certificate than {0} has".format(serving))
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read(4000).decode("utf-8", "replace")
        finally:
            connection.close()
    finally:
        raw.close()
