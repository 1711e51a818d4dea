# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking at one host: processes, the kubelet's unit, health endpoints, last log lines.

Stdlib-only I/O for the modules that run on managed nodes (Python 3.8). It decides nothing.
"""

from __future__ import annotations

import glob
import http.client
import os
import re
import socket
import ssl
import subprocess
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

PKI = "/etc/kubernetes/pki"
POD_LOGS = "/var/log/pods"

#: Components with their default secure port and health path.
ENDPOINTS: Dict[str, Tuple[int, str]] = {
    "kube-apiserver": (6443, "/readyz"),
    "kube-controller-manager": (10257, "/healthz"),
    "kube-scheduler": (10259, "/healthz"),
}


class Process(NamedTuple):
    """A running process; (pid, start) never comes twice on one boot."""

    pid: int
    start: int
    argv: List[str]

    @property
    def identity(self) -> Tuple[int, int]:
        return self.pid, self.start


def processes(name: str) -> List[Process]:
    """Return the processes whose argv[0] is the named binary, static Pods' containers included."""
    found = []
    for entry in os.listdir("/proc"):
        running = process(int(entry)) if entry.isdigit() else None
        if running is not None and running.argv and os.path.basename(running.argv[0]) == name:
            found.append(running)
    return sorted(found)


def process(pid: int) -> Optional[Process]:
    """Return one running process, None when it is gone."""
    try:
        with open("/proc/{0}/cmdline".format(pid), "rb") as handle:
            argv = [part.decode("utf-8", "replace") for part in handle.read().split(b"\0")[:-1]]
        with open("/proc/{0}/stat".format(pid), encoding="utf-8", errors="replace") as handle:
            fields = handle.read().rpartition(")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[19]), argv) if fields[0] != "Z" else None


def unit_process(unit: str) -> Optional[Process]:
    """Return the main process of an active unit; k3s and RKE2 change their own argv, so they are not found by name."""
    properties = unit_properties(unit, ["ActiveState", "MainPID"])
    pid = properties.get("MainPID", "")
    return process(int(pid)) if properties.get("ActiveState") == "active" and pid.isdigit() and pid != "0" else None


def started_at(running: Process) -> float:
    """Return when a process was started, in epoch seconds."""
    with open("/proc/stat", encoding="ascii") as handle:
        boot = next(int(line.split()[1]) for line in handle if line.startswith("btime "))
    return boot + running.start / float(os.sysconf("SC_CLK_TCK"))


def version_of(running: Process) -> str:
    """Return what a component's binary says of its version, such as 'v1.36.3'; '' when it says none."""
    said = run(["/proc/{0}/exe".format(running.pid), "--version"], timeout=20).stdout
    match = re.search(r"v\d+\.\d+\.\S+", said)
    return match.group(0) if match else ""


def run(argv: List[str], timeout: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run a command without a shell; a command that does not exist gives return code 127."""
    try:
        # AnsibleModule.run_command has no time limit: a systemctl that hangs would hang the run.
        # pylint: disable-next=ansible-bad-function
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              timeout=timeout, check=False, env=dict(os.environ, LC_ALL="C"))
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, "", "{0} is not installed".format(argv[0]))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", "{0} did not end within {1} s".format(argv[0], timeout))


def unit_properties(unit: str, names: List[str]) -> Dict[str, str]:
    """Return properties of a systemd unit; {} where there is no systemd."""
    done = run(["systemctl", "show", unit] + [part for name in names for part in ("-p", name)])
    properties = {}
    for line in done.stdout.splitlines() if done.returncode == 0 else []:
        name, equals, value = line.partition("=")
        if equals:
            properties[name] = value
    return properties


def option(argv: List[str], name: str, default: str = "") -> str:
    """Return the last value of an option of a process."""
    value = default
    for index, arg in enumerate(argv):
        if arg == "--" + name and index + 1 < len(argv):
            value = argv[index + 1]
        elif arg.startswith("--" + name + "="):
            value = arg.split("=", 1)[1]
    return value


def kubelet_settings(argv: List[str]) -> Dict[str, str]:
    """Return the few scalars we need of the KubeletConfiguration that a running kubelet reads (no YAML library here)."""
    path = option(argv, "config", "/var/lib/kubelet/config.yaml")
    settings = {"static_pod_path": option(argv, "pod-manifest-path"), "healthz_port": option(argv, "healthz-port"),
                "healthz_address": option(argv, "healthz-bind-address")}
    names = {"staticPodPath": "static_pod_path", "healthzPort": "healthz_port", "healthzBindAddress": "healthz_address"}
    try:
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                match = re.match(r"[\"']?(\w+)[\"']?:\s*[\"']?([^\s\"'#]+)", line)
                if match and match.group(1) in names:
                    key = names[match.group(1)]
                    settings[key] = settings[key] or match.group(2)
    except OSError:
        pass
    settings["static_pod_path"] = settings["static_pod_path"].rstrip("/") or "/etc/kubernetes/manifests"
    settings["healthz_port"] = settings["healthz_port"] or "10248"
    settings["healthz_address"] = settings["healthz_address"] or "127.0.0.1"
    return settings


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
        result.update(serving_certificate(_loopback(address), int(port), authority))
    return result


def serving_certificate(address: str, port: int, authority: str) -> Dict[str, Any]:
    """Return the names and the end of the certificate that is served there, and what is wrong with it."""
    try:
        context = ssl.create_default_context(cafile=authority)
        context.check_hostname = False  # the names are what is asked for
        with socket.create_connection((address, port), timeout=5) as raw, context.wrap_socket(raw) as connection:
            served: Dict[str, Any] = connection.getpeercert() or {}
    except ssl.SSLCertVerificationError as exc:
        return {"problem": "its serving certificate is not of the cluster's authority {0}: {1}".format(authority, exc.verify_message)}
    except ssl.SSLError as exc:
        return {"problem": "it has no serving certificate yet ({0})".format(exc.reason)}
    except OSError as exc:
        return {"problem": "its port {0} does not answer, or {1} cannot be read: {2}".format(port, authority, exc)}
    return {"names": [value for unused, value in served.get("subjectAltName", ())],
            "not_after": timestamp(ssl.cert_time_to_seconds(served["notAfter"]))}


# -- health ----------------------------------------------------------------------------------------------------------


def _loopback(address: str) -> str:
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)


def kubelet_health(settings: Dict[str, str]) -> str:
    """Return '' when the kubelet's /healthz answers 200, else what it said instead."""
    connection = http.client.HTTPConnection(_loopback(settings["healthz_address"]), int(settings["healthz_port"]), timeout=3)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        body = response.read(300).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as exc:
        return "its /healthz on port {0}: {1}".format(settings["healthz_port"], exc)
    finally:
        connection.close()
    return "" if response.status == 200 else "its /healthz says {0}: {1}".format(response.status, body)


def component_health(component: str, argv: List[str]) -> str:
    """Return '' when the instance on this host serves its health path, else what it said instead.

    kube-apiserver's certificate is checked against the cluster's CA under the name every kubeadm certificate has. The
    others serve self-signed certificates made at each start: there is nothing to check them against, and nothing secret
    is sent.
    """
    port, path = ENDPOINTS[component]
    port = int(option(argv, "secure-port", str(port)))
    address = _loopback(option(argv, "bind-address", ""))
    context = ssl.create_default_context() if component == "kube-apiserver" else ssl._create_unverified_context()
    try:
        if component == "kube-apiserver":
            context.load_verify_locations(option(argv, "client-ca-file", PKI + "/ca.crt"))
        status, body = _https(address, port, path, context)
        if status in (401, 403) and component == "kube-apiserver":
            certificate = option(argv, "kubelet-client-certificate", PKI + "/apiserver-kubelet-client.crt")
            key = option(argv, "kubelet-client-key", PKI + "/apiserver-kubelet-client.key")
            context.load_cert_chain(certificate, key)
            status, body = _https(address, port, path, context)
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "{0} on port {1}: {2}".format(path, port, exc)
    return "" if status == 200 else "{0} on port {1} says {2}: {3}".format(path, port, status, body.strip()[-300:])


def rancher_health(unit: str, data_directory: str) -> str:
    """Return '' when the kubelet of k3s or RKE2 on this host is healthy, and on a server its API server is ready."""
    ill = kubelet_health({"healthz_address": "127.0.0.1", "healthz_port": "10248"})
    if ill or unit.replace(".service", "").endswith("-agent"):
        return ill
    tls = os.path.join(data_directory, "server", "tls")
    try:
        context = ssl.create_default_context(cafile=os.path.join(tls, "server-ca.crt"))
        context.load_cert_chain(os.path.join(tls, "client-admin.crt"), os.path.join(tls, "client-admin.key"))
        status, body = _https("127.0.0.1", 6443, "/readyz", context)
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return "/readyz on port 6443: {0}".format(exc)
    return "" if status == 200 else "/readyz on port 6443 says {0}: {1}".format(status, body.strip()[-300:])


def _https(address: str, port: int, path: str, context: ssl.SSLContext) -> Tuple[int, str]:
    raw = socket.create_connection((address, port), timeout=5)
    try:
        connection = http.client.HTTPSConnection(address, port, timeout=5, context=context)
        connection.sock = context.wrap_socket(raw, server_hostname="kubernetes")
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read(4000).decode("utf-8", "replace")
        finally:
            connection.close()
    finally:
        raw.close()


# -- the last words of something that failed ---------------------------------------------------------------------------


def pod_log(component: str, since: float, lines: int = 12) -> List[str]:
    """Return the last lines a static Pod's containers wrote after a time (epoch seconds).

    Those of the newest container that wrote anything: the next one may just have been started.
    """
    pattern = POD_LOGS + "/kube-system_{0}-*/{0}/*.log".format(component)
    logs = sorted(((os.stat(path).st_mtime, path) for path in glob.glob(pattern) if os.path.exists(path)), reverse=True)
    for written, path in logs:
        if written < since:
            break
        try:
            with open(path, "rb") as handle:
                handle.seek(max(0, os.path.getsize(path) - 64 * 1024))
                text = handle.read().decode("utf-8", "replace")
        except OSError:
            continue
        # The CRI's form is '<time> <stream> <tag> <message>'.
        words = [re.sub(r"^\S+ (?:stdout|stderr) [FP] ?", "", line)[:400] for line in text.splitlines()]
        words = [line for line in words if line.strip()]
        if words:
            return words[-lines:]
    return []


def pod_directories(component: str) -> List[str]:
    """Return the log folders of a static Pod: one for each version of its manifest that still has logs."""
    return glob.glob(POD_LOGS + "/kube-system_{0}-*/{0}".format(component))


def container_starts(component: str, known: Iterable[str]) -> int:
    """Count how often the containers in log folders other than the known ones were started."""
    numbers = [int(name[:-4]) for directory in set(pod_directories(component)) - set(known) if os.path.isdir(directory)
               for name in os.listdir(directory) if name.endswith(".log") and name[:-4].isdigit()]
    return max(numbers) + 1 if numbers else 0


def kubelet_log(since: float, lines: int = 12, about: str = "", unit: str = "kubelet") -> List[str]:
    """Return a unit's last journal lines since a time: those about something, else its errors, else any."""
    done = run(["journalctl", "-u", unit, "--since", "@{0}".format(int(since)), "--no-pager", "-o", "cat"])
    text = [line[:400] for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in text if re.match(r"[EF]\d{4} |Error", line)]
    return ([line for line in text if about and about in line] or errors or text)[-lines:]


def restarts(unit: str) -> int:
    """Return how often systemd has started a unit again by itself since its last ordinary start."""
    count = unit_properties(unit, ["NRestarts"]).get("NRestarts", "")
    return int(count) if count.isdigit() else 0


def timestamp(epoch: Optional[float] = None) -> str:
    """Return RFC 3339 UTC with whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if epoch is None else epoch))


def lines_of(items: List[str]) -> str:
    return "\n".join("  " + item for item in items)
