# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules' access to the Kubernetes API: kubeconfig, calls with plain dicts, and errors that say what to do.

The 'kubernetes' library does authentication and TLS. Objects stay plain dicts, as the API sends them, so that the pure modules can use
them, and model classes drop no fields.
"""

from __future__ import annotations

import base64
import copy
import email.utils
import json
import os
import sys
import traceback
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import urlencode

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from ansible.module_utils.secrets import register_secrets
except ImportError:  # before ansible-core 2.22
    register_secrets = None

try:
    import kubernetes.client
    import kubernetes.client.rest
    import kubernetes.config
    import kubernetes.stream
    import urllib3

    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()

NAMESPACE = "kube-system"
NAME = "cloud-controller-manager"

#: Added to the argument spec of every API module. The fragment outoftree.ccm.api documents them.
API_OPTIONS: Dict[str, Any] = dict(
    kubeconfig=dict(type="raw", no_log=False),
    context=dict(type="str"),
)

#: Maximum number of attempts of a read. It is repeated only after a timeout.
ATTEMPTS = 3

#: Keys of a kubeconfig that have a file's path or, with the suffix "-data", its content.
_FILES = ("certificate-authority", "client-certificate", "client-key")

#: OpenSSL's error codes for certificates that only its strict mode refuses, such as a CA without key usage, or a certificate without key
#: identifiers. Python uses that mode from 3.13 on. Kubernetes accepts such certificates.
_STRICT = range(80, 94)

_SECRET_KEYS = ("token", "password", "client-key-data", "client-certificate-data")


class ApiError(Exception):
    """A call failed: C(status) is the HTTP status, 0 if there was no answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """Calls to one API server, with its JSON as dicts.

    The library provides the connection pool (TLS, proxy) and the credentials. Requests use the pool directly, because the signature of the
    library's call_api differs between its releases.
    """

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._pool = kubernetes.client.rest.RESTClientObject(configuration).pool_manager
        self.host: str = configuration.host
        #: The API server's time in its last answer. Ages are computed with it. This host's clock is used only before the first answer.
        self.now: datetime = datetime.now(timezone.utc)

    def call(self, method: str, path: str, body: Any = None, query: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
        """Make one call (a PATCH is a merge patch) and return the answer. A GET that times out is tried ATTEMPTS times. Raises ApiError."""
        headers = {"Accept": "application/json"}
        for setting in self._configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                headers[setting["key"]] = setting["value"]
        data = None
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
            data = json.dumps(body).encode("utf-8")
        url = self.host + path + ("?" + urlencode(query) if query else "")
        # A read is retried after a timeout, because an API server that has just restarted is busy.
        for attempt in range(ATTEMPTS if method == "GET" else 1, 0, -1):
            try:
                answer = self._pool.request(method, url, body=data, headers=headers,
                                            timeout=urllib3.Timeout(connect=10, read=30), retries=False)
                break
            except (urllib3.exceptions.HTTPError, OSError) as exc:
                if attempt == 1 or not isinstance(exc, urllib3.exceptions.TimeoutError):
                    raise ApiError(0, "{0} does not answer: {1}".format(self.host, exc)) from exc
        if answer.headers.get("Date"):
            self.now = email.utils.parsedate_to_datetime(answer.headers["Date"])
        if not 200 <= answer.status < 300:
            raise ApiError(answer.status, _reason(answer))
        return json.loads(answer.data)

    def get(self, path: str, query: Optional[Dict[str, str]] = None) -> Optional[Dict[str, Any]]:
        """Return one object or list; None if it does not exist."""
        try:
            return self.call("GET", path, query=query)
        except ApiError as exc:
            if exc.status == 404:
                return None
            raise

    def items(self, path: str, query: Optional[Dict[str, str]] = None) -> List[Dict[str, Any]]:
        """Return the items of a list, which is read page by page; [] for an unknown kind."""
        return [item for page in self.pages(path, query) for item in page]

    def pages(self, path: str, query: Optional[Dict[str, str]] = None) -> Iterator[List[Dict[str, Any]]]:
        """Yield the items of each page of a list, so that a caller that needs a few fields never holds all objects."""
        wanted = dict(query or {}, limit="500")
        while True:
            page = self.get(path, wanted) or {}
            yield page.get("items") or []
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return
            wanted["continue"] = following

    def patch(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """Merge-patch an object and return it. With metadata.resourceVersion in the body, somebody else's change causes a 409
        instead of a lost update."""
        return self.call("PATCH", path, body)

    def execute(self, namespace: str, pod: str, container: str, command: List[str], timeout: float = 30) -> Tuple[int, str, str]:
        """Run a command in a container; return its status, standard output and standard error. Raises ApiError."""
        core = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(self._configuration))
        try:
            stream = kubernetes.stream.stream(
                core.connect_get_namespaced_pod_exec, pod, namespace, container=container, command=command, stdin=False,
                stdout=True, stderr=True, tty=False, _preload_content=False)
            stream.run_forever(timeout=timeout)
            if stream.is_open():
                stream.close()
                raise ApiError(0, "'{0}' in Pod {1}/{2} did not end within {3:g} s".format(" ".join(command), namespace, pod, timeout))
            return stream.returncode, stream.read_stdout() or "", stream.read_stderr() or ""
        except (kubernetes.client.ApiException, OSError, ValueError) as exc:  # the library raises one of them for a failed handshake, too
            raise ApiError(getattr(exc, "status", 0) or 0, "cannot run a command in Pod {0}/{1}: {2}".format(
                namespace, pod, " ".join(str(getattr(exc, "reason", exc)).split()))) from exc


def _reason(answer: Any) -> str:
    try:
        message = json.loads(answer.data)["message"]
    except (TypeError, ValueError, KeyError):
        message = answer.data.decode("utf-8", "replace").strip()[:300] or answer.reason
    return "{0} ({1})".format(message, answer.status)


def connect(module: AnsibleModule) -> Api:
    """Return the API of the module's kubeconfig, or fail with one clear message."""
    if IMPORT_ERROR is not None:
        module.fail_json(
            msg="{0} The tasks that talk to the Kubernetes API run on ccm_install_api_host with {1}. Install the library there "
                "('pip install kubernetes'), or choose another interpreter with ansible_python_interpreter.".format(
                    missing_required_lib("kubernetes"), sys.executable),
            exception=IMPORT_ERROR)
    source = module.params["kubeconfig"] or os.environ.get("K8S_AUTH_KUBECONFIG") or os.environ.get("KUBECONFIG") \
        or "~/.kube/config"
    configuration = kubernetes.client.Configuration()
    try:
        if isinstance(source, dict):
            mask(module, _secrets(source))
            kubernetes.config.load_kube_config_from_dict(
                in_memory(source), context=module.params["context"], client_configuration=configuration, persist_config=False)
        else:
            source = os.path.expanduser(source)
            with open(source, encoding="utf-8") as handle:
                handle.read(1)
            kubernetes.config.load_kube_config(
                source, context=module.params["context"], client_configuration=configuration, persist_config=False)
    except OSError as exc:
        module.fail_json(msg="cannot read the kubeconfig {0}: {1}. Set ccm_install_kubeconfig to a kubeconfig with cluster-admin "
                             "rights on ccm_install_api_host, or leave it unset to use the control plane's admin.conf".format(
                                 exc.filename or "given", exc.strerror or exc))
    except (kubernetes.config.ConfigException, ValueError, KeyError, TypeError, AttributeError) as exc:
        module.fail_json(msg="the kubeconfig {0} is not usable: {1}".format(
            "given as data" if isinstance(source, dict) else source, str(exc).splitlines()[0] if str(exc) else type(exc).__name__))
    except Exception as exc:  # a YAML error, whose class belongs to a library that may not be importable here
        module.fail_json(msg="the kubeconfig {0} is not YAML: {1}".format(
            "given as data" if isinstance(source, dict) else source, " ".join(str(exc).split())))
    return Api(configuration)


def mask(module: AnsibleModule, values: List[str]) -> None:
    """Keep values out of the result and the log. From 2.22 on, ansible-core has register_secrets for this, and no
    longer looks at no_log_values."""
    if register_secrets is None:
        module.no_log_values.update(values)
    else:
        register_secrets(values)


def in_memory(kubeconfig: Dict[str, Any]) -> Dict[str, Any]:
    """Return a kubeconfig whose keys and certificates are files in memory, which disappear with this process.

    TLS reads keys and certificates from files, so the library writes the value of each "-data" key to a temporary file and removes the file at the end. A
    killed process would leave the key of the cluster's administrator behind. On systems without memory files, the kubeconfig stays as it is.
    """
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        return kubeconfig
    changed = copy.deepcopy(kubeconfig)
    for entries, kind in (("clusters", "cluster"), ("users", "user")):
        for entry in changed.get(entries) or []:
            for name in _FILES:
                data = (entry.get(kind) or {}).pop(name + "-data", None)
                if data:
                    descriptor = os.memfd_create(name)  # stays open until the process exits
                    with open(descriptor, "wb", closefd=False) as handle:
                        handle.write(base64.b64decode(data))
                    entry[kind][name] = "/proc/self/fd/{0}".format(descriptor)
    return changed


def _secrets(value: Any) -> List[str]:
    """Return the credentials in a kubeconfig, which Ansible must mask in all output."""
    if isinstance(value, dict):
        values = [str(item) for key, item in value.items() if key in _SECRET_KEYS and item]
        return values + [secret for item in value.values() for secret in _secrets(item)]
    if isinstance(value, list):
        return [secret for item in value for secret in _secrets(item)]
    return []


def explain(exc: ApiError) -> str:
    """Return an error's text, with what to do if that is known."""
    if exc.status == 401:
        return "{0}: the kubeconfig's credentials are invalid or expired".format(exc)
    if exc.status == 403:
        return "{0}: the kubeconfig's user needs this permission. The control plane's admin.conf has it".format(exc)
    if isinstance(exc.__cause__, urllib3.exceptions.SSLError):
        if any(getattr(reason, "verify_code", 0) in _STRICT for reason in exc.__cause__.args):
            return ("{0}: Kubernetes accepts this certificate, but Python 3.13 and newer do not. Set ansible_python_interpreter of "
                    "ccm_install_api_host to an older Python that has the library kubernetes, or renew the cluster's CA and the API "
                    "server's certificate, with key identifiers and the CA's key usage".format(exc))
        return ("{0}: check that the kubeconfig has the CA of this cluster, and that the server's certificate has the address of the "
                "kubeconfig".format(exc))
    if exc.status == 0:
        return "{0}: check that the address is correct and reachable from ccm_install_api_host".format(exc)
    return str(exc)


def node_path(name: str) -> str:
    return "/api/v1/nodes/{0}".format(name)


def lease_path(name: str = NAME, namespace: str = NAMESPACE) -> str:
    return "/apis/coordination.k8s.io/v1/namespaces/{0}/leases/{1}".format(namespace, name)


def daemonset_path(name: str = NAME, namespace: str = NAMESPACE) -> str:
    return "/apis/apps/v1/namespaces/{0}/daemonsets/{1}".format(namespace, name)


def node_events(api: Api, name: str, limit: int = 5) -> List[str]:
    """Return the newest Events about a Node as text, at most C(limit) of them, oldest first."""
    query = {"fieldSelector": "involvedObject.kind=Node,involvedObject.name={0}".format(name)}
    events = api.items("/api/v1/events", query)

    def when(event: Dict[str, Any]) -> str:
        return event.get("lastTimestamp") or event.get("eventTime") or ""

    messages: List[Tuple[str, str]] = []
    for event in sorted(events, key=when):
        component = (event.get("source") or {}).get("component") or event.get("reportingComponent") or "?"
        messages.append((component, "{0} {1}: {2} ({3})".format(
            event.get("type"), event.get("reason"), " ".join((event.get("message") or "").split()), component)))
    # The Events of these components say little about a cloud, so they are returned only if there are no other Events.
    others = [text for component, text in messages if component not in ("kubelet", "kube-proxy", "node-controller")]
    return (others or [text for unused, text in messages])[-limit:]
