# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking at one host: what a component's arguments and files say, health endpoints, last log lines.

Stdlib-only I/O for the modules that run on managed nodes (Python 3.8). It decides nothing. Arguments are those of processes that
_processes identified; files are opened by _files.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import os
import re
import socket
import ssl
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils import _commands, _files, _flags, _processes

PKI = "/etc/kubernetes/pki"

#: What the gates need of a kubelet's settings: their values without a setting, their keys in KubeletConfiguration, and their flags.
KUBELET_DEFAULTS = {"static_pod_path": "/etc/kubernetes/manifests", "healthz_port": "10248", "healthz_address": "127.0.0.1",
                    "pod_logs": _processes.POD_LOGS, "port": "10250", "address": ""}
KUBELET_KEYS = {"staticPodPath": "static_pod_path", "healthzPort": "healthz_port", "healthzBindAddress": "healthz_address",
                "podLogsDir": "pod_logs", "port": "port", "address": "address"}
KUBELET_FLAGS = {"pod-manifest-path": "static_pod_path", "healthz-port": "healthz_port", "healthz-bind-address": "healthz_address",
                 "port": "port", "address": "address"}

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


def option(argv: List[str], name: str, default: str = "") -> str:
    """Return the last value of an option of a process."""
    value = default
    for index, arg in enumerate(argv):
        found, given, text = _flags.split_flag(arg)
        if found == name and (given or index + 1 < len(argv)):
            value = text if given else argv[index + 1]
    return value


def kubelet_settings(argv: List[str]) -> Dict[str, str]:
    """Return the few scalars we need of the KubeletConfiguration that a running kubelet reads (no YAML library here).

    Flags count more than drop-ins (C(--config-dir)), the last of these more than the ones before, and all more than C(--config).
    """
    settings = dict(KUBELET_DEFAULTS)
    for path in [option(argv, "config", "/var/lib/kubelet/config.yaml"), *_drop_ins(option(argv, "config-dir"))]:
        for line in (_files.read_text(path) or "").splitlines():
            match = re.match(r"[\"']?(\w+)[\"']?:\s*[\"']?([^\s\"'#]+)", line)
            if match and match.group(1) in KUBELET_KEYS:
                settings[KUBELET_KEYS[match.group(1)]] = match.group(2)
    settings.update({key: option(argv, flag) for flag, key in KUBELET_FLAGS.items() if option(argv, flag)})
    for key in ("static_pod_path", "pod_logs"):
        settings[key] = settings[key].rstrip("/") or KUBELET_DEFAULTS[key]
    return settings


def _drop_ins(folder: str) -> List[str]:
    try:
        return _files.listing(folder, "*.conf") if folder else []
    except OSError:
        return []


def kubelet_serving(argv: List[str], texts: List[str]) -> Dict[str, Any]:
    """Return what a kubelet serves whose certificate the cluster signs: C(bootstrap), C(names), C(not_after), C(problem).

    It is asked itself: a file says nothing about what the process uses. C(texts) are its KubeletConfiguration and drop-ins.
    """
    def setting(key: str, flag: str, default: str) -> str:
        found = [match.group(1) for text in texts
                 for match in re.finditer(r"^[ \t]*[\"']?{0}[\"']?:[ \t]*[\"']?([^\s\"'#]+)".format(key), text, re.MULTILINE)]
        return option(argv, flag) or (found[-1] if found else default)

    bare = "--rotate-server-certificates" in argv
    bootstrap = (bare or setting("serverTLSBootstrap", "rotate-server-certificates", "false") == "true") and not setting(
        "tlsCertFile", "tls-cert-file", "")
    result: Dict[str, Any] = {"bootstrap": bootstrap, "names": [], "not_after": "", "problem": ""}
    if bootstrap:
        authority = setting("clientCAFile", "client-ca-file", "/etc/kubernetes/pki/ca.crt")
        port = option(argv, "port") or next(iter(re.findall(r"^port:[ \t]*([0-9]+)", "\n".join(texts), re.MULTILINE)), "10250")
        address = option(argv, "address") or next(iter(re.findall(r"^address:[ \t]*[\"']?([^\s\"'#]+)", "\n".join(texts), re.MULTILINE)), "")
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
            "not_after": timestamp(ssl.cert_time_to_seconds(served["notAfter"]))}


# -- health ----------------------------------------------------------------------------------------------------------


def _endpoint(address: str, port: str) -> Tuple[str, int]:
    """Return where a component of this host listens; raises ValueError for what cannot be this host."""
    address = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(address, address)
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("{0!r} is no port".format(port[:50]))
    if not is_local(address):
        raise ValueError("{0!r} is no address of this host, so it is not asked".format(address[:50]))
    return address, int(port)


def is_local(address: str) -> bool:
    """Whether an IP address is this host's own, by the kernel's tables."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return False
    return wanted.is_loopback or str(wanted) in _own_addresses()


def _own_addresses() -> List[str]:
    """Return the addresses of this host's interfaces in the network namespace of the caller."""
    found, last = [], ""
    try:
        with open("/proc/net/fib_trie", encoding="ascii", errors="replace") as handle:
            for line in handle:
                match = re.search(r"\|-- ([0-9.]+)", line)
                last = match.group(1) if match else last
                if "/32 host LOCAL" in line:
                    found.append(last)
    except OSError:
        pass
    try:
        with open("/proc/net/if_inet6", encoding="ascii", errors="replace") as handle:
            found += [str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in handle]
    except OSError:
        pass
    return found


def _trusting(authority: str) -> ssl.SSLContext:
    """Return a context that trusts the certificates in one file of root's alone. Raises OSError and ValueError."""
    content = _files.read(authority)
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
    port = option(argv, "secure-port", str(number))
    try:
        where = _endpoint(option(argv, "bind-address", ""), port)
        context = ssl._create_unverified_context()
        serving = ""
        if component == "kube-apiserver":
            serving = option(argv, "tls-cert-file")
            if not _first_certificate(serving):
                context, serving = _trusting(option(argv, "client-ca-file", PKI + "/ca.crt")), ""
        status, body = _https(where, path, context, serving)
        if status in (401, 403) and component == "kube-apiserver":
            certificate = option(argv, "kubelet-client-certificate", PKI + "/apiserver-kubelet-client.crt")
            key = option(argv, "kubelet-client-key", PKI + "/apiserver-kubelet-client.key")
            context.load_cert_chain(_files.resolve(certificate), _files.resolve(key))
            status, body = _https(where, path, context, serving)
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "{0} on port {1}: {2}".format(path, port, exc)
    return "" if status == 200 else "{0} on port {1} says {2}: {3}".format(path, port, status, body.strip()[-300:])


def rancher_health(unit: str, data_directory: str, port: int = RANCHER_PORT) -> str:
    """Return '' when the kubelet of k3s or RKE2 on this host is healthy, and on a server its API server is ready."""
    ill = kubelet_health(KUBELET_DEFAULTS)
    if ill or unit.replace(".service", "").endswith("-agent"):
        return ill
    tls = os.path.join(data_directory, "server", "tls")
    try:
        context = _trusting(os.path.join(tls, "server-ca.crt"))
        certificate, key = (_files.resolve(os.path.join(tls, "client-admin" + end)) for end in (".crt", ".key"))
        context.load_cert_chain(certificate, key)
        status, body = _https(_endpoint("", str(port)), "/readyz", context)
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "/readyz on port {0}: {1}".format(port, exc)
    return "" if status == 200 else "/readyz on port {0} says {1}: {2}".format(port, status, body.strip()[-300:])


def _first_certificate(path: str) -> bytes:
    """Return the first certificate of a file in DER, b'' when there is none that root alone decides about."""
    text = _files.read_text(path) if path else None
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


# -- the last words of something that failed ---------------------------------------------------------------------------


def pod_log(component: str, since: float, lines: int = 12, logs: str = _processes.POD_LOGS) -> List[str]:
    """Return the last lines a static Pod's containers wrote after a time (epoch seconds).

    Those of the newest container that wrote anything: the next one may just have been started.
    """
    found = []
    for folder in _processes.static_pods(component, logs).values():
        for path in _listed(folder):
            try:
                found.append((os.stat(_files.resolve(path)).st_mtime, path))
            except OSError:
                continue
    for written, path in sorted(found, reverse=True):
        if written < since:
            break
        try:
            text = _files.tail(path, 64 * 1024)
        except OSError:
            continue
        # The CRI's form is '<time> <stream> <tag> <message>'.
        words = [re.sub(r"^\S+ (?:stdout|stderr) [FP] ?", "", line)[:400] for line in text.splitlines()]
        words = [line for line in words if line.strip()]
        if words:
            return words[-lines:]
    return []


def pod_directories(component: str, logs: str = _processes.POD_LOGS) -> List[str]:
    """Return the log folders of a static Pod: one for each version of its manifest that still has logs."""
    return sorted(_processes.static_pods(component, logs).values())


def container_starts(component: str, known: Iterable[str], logs: str = _processes.POD_LOGS) -> int:
    """Count how often the containers in log folders other than the known ones were started."""
    numbers = [int(name[:-4]) for directory in set(pod_directories(component, logs)) - set(known)
               for name in map(os.path.basename, _listed(directory)) if name[:-4].isdigit()]
    return max(numbers) + 1 if numbers else 0


def _listed(folder: str) -> List[str]:
    """Return the containers' logs in a folder of the kubelet's."""
    try:
        return _files.listing(folder, "*.log")
    except OSError:
        return []


def kubelet_log(since: float, lines: int = 12, about: str = "", unit: str = "kubelet") -> List[str]:
    """Return a unit's last journal lines since a time: those about something, else its errors, else any."""
    done = _commands.run(["journalctl", "-u", unit, "--since", "@{0}".format(int(since)), "-n", "5000", "--no-pager", "-o", "cat"])
    text = [line[:400] for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in text if re.match(r"[EF]\d{4} |Error", line)]
    return ([line for line in text if about and about in line] or errors or text)[-lines:]


def restarts(unit: str) -> int:
    """Return how often systemd has started a unit again by itself since its last ordinary start."""
    count = _commands.unit_properties(unit, ["NRestarts"]).get("NRestarts", "")
    return int(count) if count.isdigit() else 0


def machine() -> str:
    """Return a digest of C(/etc/machine-id), which nobody else should know (machine-id(5)); '' without one."""
    text = (_files.read_text("/etc/machine-id") or "").strip()
    return hashlib.sha256(("outoftree.ccm " + text).encode("utf-8")).hexdigest()[:32] if text else ""


def timestamp(epoch: Optional[float] = None) -> str:
    """Return RFC 3339 UTC with whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if epoch is None else epoch))


def lines_of(items: List[str]) -> str:
    return "\n".join("  " + item for item in items)
