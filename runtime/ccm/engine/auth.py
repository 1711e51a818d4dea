# SPDX-License-Identifier: Apache-2.0
"""Where the API server is and how to prove who we are: Pod ServiceAccount or kubeconfig.

Whatever may be rotated while we run (token files, certificates, exec credentials) is looked at again before each
request; that costs a `stat`. Secrets stay in memory: no temporary files, no log lines, no representations.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import logging
import os
import shutil
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ccm.base.clock import SYSTEM_CLOCK, Clock

from .api_errors import KubeConfigError, UnavailableError
from .endpoints import Proxy, environment_proxy, proxy_of, server_url
from .objects import parse_time

logger = logging.getLogger(__name__)

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: A file is read again when its stat changed, or after this many seconds at the latest (client-go: 60 s).
REREAD = 60.0
#: How long an exec plugin may take, in seconds.
EXEC_TIMEOUT = 60.0
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class FileText:
    """The text of a file that others replace, e.g. a projected ServiceAccount token."""

    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = path
        self._clock = clock
        self._text = ""
        self._seen: tuple[int, int, int] | None = None
        self._read_at = 0.0

    def get(self) -> str:
        """The present text, stripped; the last one while the file is briefly missing. Raises OSError or
        UnicodeDecodeError without one."""
        try:
            seen = fingerprint(self.path)
            if seen != self._seen or self._clock.monotonic() - self._read_at >= REREAD:
                self._text, self._seen, self._read_at = self.path.read_text().strip(), seen, self._clock.monotonic()
        except (OSError, UnicodeDecodeError):
            if not self._text:
                raise
        return self._text

    def invalidate(self) -> None:
        self._seen = None


def fingerprint(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


@dataclass(frozen=True)
class Pem:
    """A PEM, either given as data or in a file that may be rotated."""

    data: bytes = field(default=b"", repr=False)
    file: Path | None = None

    def read(self) -> bytes:
        return self.data if self.file is None else self.file.read_bytes()


@dataclass
class ExecPlugin:
    """A credential plugin (client.authentication.k8s.io v1 or v1beta1), run when its last answer has expired."""

    command: str
    args: list[str] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    api_version: str
    install_hint: str = ""
    #: May hold a proxy's credentials.
    cluster: dict[str, Any] | None = field(default=None, repr=False)
    clock: Clock = SYSTEM_CLOCK
    _status: dict[str, Any] = field(default_factory=dict, repr=False)
    _expires: datetime.datetime | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def credentials(self) -> dict[str, Any]:
        """`status` of the ExecCredential: token, clientCertificateData, clientKeyData. Raises UnavailableError."""
        async with self._lock:
            if not self._status or (self._expires is not None and self.clock.now() >= self._expires):
                self._status = await self._run()
                stamp = self._status.get("expirationTimestamp")
                self._expires = parse_time(stamp) if stamp else None
            return self._status

    def invalidate(self) -> None:
        self._status = {}

    async def _run(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})
        try:
            process = await asyncio.create_subprocess_exec(
                self.command,
                *self.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": info},
            )
        except (OSError, ValueError) as error:  # ValueError: a zero byte in an argument
            hint = f". {self.install_hint}" if self.install_hint else ""
            raise self._failed(f"cannot be started: {getattr(error, 'strerror', None) or error}{hint}") from None
        try:
            async with asyncio.timeout(EXEC_TIMEOUT):
                out, err = await process.communicate()
        except TimeoutError:
            raise self._failed(f"did not end within {EXEC_TIMEOUT:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = err.decode("utf-8", "replace").strip().splitlines()
            raise self._failed(f"exited with {process.returncode}: {lines[-1][:300] if lines else '(no message)'}")
        return self.parse(out)

    def parse(self, out: bytes) -> dict[str, Any]:
        """The `status` of what the plugin printed. Raises UnavailableError."""
        try:
            answer = json.loads(out)
            status: dict[str, Any] = answer["status"]
            if answer["apiVersion"] != self.api_version or not (
                status.get("token") or (status.get("clientCertificateData") and status.get("clientKeyData"))
            ):
                raise ValueError
            for name in ("token", "clientCertificateData", "clientKeyData"):
                if not isinstance(status.get(name) or "", str):
                    raise ValueError
            if not _is_header(status.get("token") or ""):
                raise ValueError
            if status.get("expirationTimestamp") and parse_time(status["expirationTimestamp"]).tzinfo is None:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._failed(
                f"did not print an ExecCredential of {self.api_version} with a token or a client certificate"
            ) from None
        return status

    def _failed(self, what: str) -> UnavailableError:
        return UnavailableError(0, "ExecPlugin", f"credential plugin {self.command!r} of the kubeconfig {what}")


@dataclass
class Access:
    """Everything about one API server that a request needs; from `in_cluster`, `from_kubeconfig`, or built plainly."""

    server: str
    ca: Pem | None = None
    insecure: bool = False
    server_name: str | None = None
    proxy: Proxy | None = None
    cert: Pem | None = None
    key: Pem | None = None
    token: str = field(default="", repr=False)
    token_file: FileText | None = None
    exec: ExecPlugin | None = None
    impersonate: list[tuple[str, str]] = field(default_factory=list)
    _ssl: ssl.SSLContext | None = None
    _ssl_seen: object = field(default=None, repr=False)

    async def headers(self) -> list[tuple[str, str]]:
        """Authorization and impersonation headers. Raises UnavailableError when a credential cannot be obtained."""
        token = self.token
        if self.token_file is not None:
            try:
                token = self.token_file.get()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is no text"
                raise UnavailableError(0, "TokenFile", f"token file {self.token_file.path}: {reason}") from None
            if not _is_header(token):
                raise UnavailableError(0, "TokenFile", f"token file {self.token_file.path}: it is no token")
        elif self.exec is not None:
            token = str((await self.exec.credentials()).get("token") or "")
        return ([("Authorization", f"Bearer {token}")] if token else []) + self.impersonate

    def invalidate(self) -> None:
        """The server answered 401: forget what is cached."""
        if self.token_file is not None:
            self.token_file.invalidate()
        if self.exec is not None:
            self.exec.invalidate()

    @property
    def renewable(self) -> bool:
        """Whether asking again after a 401 can make a difference."""
        return self.token_file is not None or self.exec is not None

    async def tls(self) -> ssl.SSLContext | bool:
        """The TLS context for a request; a new one when certificates changed, the old one while they do not load.

        True (aiohttp: "verify as usual") for plain HTTP. Raises UnavailableError when there was never a working one.
        """
        if not self.server.startswith("https:"):
            return True
        pair = await self._pair()
        try:
            files = [pem.file for pem in (self.ca, *pair) if pem is not None and pem.file is not None]
            seen = ([fingerprint(path) for path in files], [pem.data for pem in pair if pem is not None])
            if self._ssl is None or seen != self._ssl_seen:
                self._ssl, self._ssl_seen = self._context(*pair), seen
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if self._ssl is None:
                raise UnavailableError(0, "Certificates", f"TLS files for {self.server}: {error}") from None
            logger.warning("keeping the old TLS certificates for %s, the new ones do not load: %s", self.server, error)
        return self._ssl

    async def _pair(self) -> tuple[Pem | None, Pem | None]:
        if self.exec is None:
            return self.cert, self.key
        status = await self.exec.credentials()
        if not status.get("clientCertificateData"):
            return self.cert, self.key
        return (
            Pem(str(status["clientCertificateData"]).encode()),
            Pem(str(status["clientKeyData"]).encode()),
        )

    def _context(self, cert: Pem | None, key: Pem | None) -> ssl.SSLContext:
        cadata = self.ca.read().decode("ascii") if self.ca is not None else None
        context = ssl.create_default_context(cadata=cadata)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if hasattr(ssl, "VERIFY_X509_STRICT"):  # cluster CAs are not always RFC 5280 to the letter
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert is not None and key is not None:
            with _as_file(cert.read() + b"\n" + key.read()) as path:
                context.load_cert_chain(path)
        return context


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path under which OpenSSL can read `data`: in memory on Linux, also where the root file system is read-only."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("client-certificate")
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        with tempfile.NamedTemporaryFile() as file:  # created with mode 0600
            file.write(data)
            file.flush()
            yield file.name


def load(kubeconfig: str = "", master: str = "", *, clock: Clock = SYSTEM_CLOCK) -> Access:
    """Access by the meaning of upstream's flags: `--kubeconfig`, `--master` (replaces its server), or the Pod's own.

    Raises KubeConfigError.
    """
    if kubeconfig:
        access = from_kubeconfig(Path(kubeconfig), clock=clock)
        if master:
            access.server = server_url(master, "--master")
    elif master:
        access = Access(server_url(master, "--master"))
    else:
        access = in_cluster(clock=clock)
    access.proxy = access.proxy or proxy_of(environment_proxy(access.server), "the environment's proxy")
    return access


def in_cluster(*, clock: Clock = SYSTEM_CLOCK) -> Access:
    """Access as the ServiceAccount of the Pod we run in. Raises KubeConfigError."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise KubeConfigError(
            "no API server known: this is no Pod (KUBERNETES_SERVICE_HOST and _PORT are not set) "
            "and neither --kubeconfig nor --master is given. Give --kubeconfig FILE"
        )
    token, ca = SERVICE_ACCOUNT_DIR / "token", SERVICE_ACCOUNT_DIR / "ca.crt"
    for path in (token, ca):
        if not os.access(path, os.R_OK):
            raise KubeConfigError(
                f"{path} cannot be read: the Pod has no ServiceAccount token. "
                f"Remove automountServiceAccountToken: false, or give --kubeconfig FILE"
            )
    host = f"[{host}]" if ":" in host else host
    return Access(f"https://{host}:{port}", ca=Pem(file=ca), token_file=FileText(token, clock))


class _Fields:
    """A mapping of the kubeconfig, whose complaints name file and field."""

    def __init__(self, file: Path, where: str, data: object) -> None:
        self.file, self.where = file, where
        if not isinstance(data, dict):
            raise self.error("", f"is {type(data).__name__ if data is not None else 'missing'}, not a mapping")
        self.data: dict[str, Any] = data

    def error(self, name: str, problem: str) -> KubeConfigError:
        path = ".".join(part for part in (self.where, name) if part)
        return KubeConfigError(f"kubeconfig {self.file}: {path or 'the document'} {problem}")

    def text(self, name: str) -> str:
        value = self.data.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, f"is {type(value).__name__}, not text")
        return value

    def flag(self, name: str) -> bool:
        value = self.data.get(name) or False
        if not isinstance(value, bool):
            raise self.error(name, "is not true or false")
        return value

    def strings(self, name: str) -> list[str]:
        value = self.data.get(name) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, "is not a list of texts")
        return value

    def path(self, name: str) -> Path | None:
        """A readable file; relative names start at the kubeconfig's folder, as kubectl has it."""
        text = self.text(name)
        if not text:
            return None
        path = self.file.parent / text
        try:
            with path.open("rb"):
                return path
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            reason = getattr(error, "strerror", None) or error
            raise self.error(name, f"names {str(path)!r}, which cannot be read: {reason}") from None

    def pem(self, name: str) -> Pem | None:
        """`<name>-data` in base64 or, less strong, the file `<name>`."""
        data = self.text(f"{name}-data")
        if data:
            try:
                return Pem(base64.b64decode(data, validate=True))
            except ValueError:  # binascii.Error, or letters beyond ASCII
                raise self.error(f"{name}-data", "is not base64") from None
        path = self.path(name)
        return Pem(file=path) if path else None

    def named(self, name: str, wanted: str, kind: str) -> _Fields:
        """The entry `wanted` of the list `name`, as the mapping `kind` within it."""
        entries = self.data.get(name) or []
        if not isinstance(entries, list):
            raise self.error(name, "is not a list")
        for entry in entries:
            if isinstance(entry, dict) and entry.get("name") == wanted:
                return _Fields(self.file, f"{name}[{wanted}].{kind}", entry.get(kind) or {})
        there = ", ".join(str(e["name"]) for e in entries if isinstance(e, dict) and e.get("name")) or "none"
        raise self.error(name, f"has no entry {wanted!r} (there are: {there})")


def from_kubeconfig(path: Path, *, clock: Clock = SYSTEM_CLOCK) -> Access:
    """Access as the current context of one kubeconfig file says. Raises KubeConfigError."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise KubeConfigError(
            f"kubeconfig {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    except RecursionError:
        raise KubeConfigError(f"kubeconfig {path} is nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise KubeConfigError(
            f"kubeconfig {path} is not YAML{where}: {getattr(error, 'problem', None) or ''}"
        ) from None
    config = _Fields(path, "", document)
    current = config.text("current-context")
    if not current:
        raise config.error("current-context", "is not set: `kubectl config use-context NAME --kubeconfig FILE` sets it")
    context = config.named("contexts", current, "context")
    cluster = config.named("clusters", context.text("cluster"), "cluster")
    user_name = context.text("user")
    user = config.named("users", user_name, "user") if user_name else _Fields(path, "user", {})

    ca, insecure = cluster.pem("certificate-authority"), cluster.flag("insecure-skip-tls-verify")
    if ca and insecure:
        raise cluster.error("insecure-skip-tls-verify", "and certificate-authority exclude each other: keep the latter")
    access = Access(
        server_url(cluster.text("server"), f"kubeconfig {path}: {cluster.where}.server"),
        ca=ca,
        insecure=insecure,
        server_name=cluster.text("tls-server-name") or None,
        proxy=proxy_of(cluster.text("proxy-url"), f"kubeconfig {path}: {cluster.where}.proxy-url"),
        cert=user.pem("client-certificate"),
        key=user.pem("client-key"),
        token=user.text("token").strip(),
        impersonate=_impersonation(user),
    )
    if (access.cert is None) != (access.key is None):
        raise user.error("", "needs both client-certificate and client-key (or their -data), but has only one")
    if not _is_header(access.token):
        raise user.error("token", "contains characters that no token has")
    token_file = user.path("tokenFile")
    if token_file:
        access.token_file = FileText(token_file, clock)
    if user.data.get("exec") and not (access.token or access.token_file):
        access.exec = _exec_plugin(user, cluster, clock)
    for name, instead in (("auth-provider", "use an exec plugin"), ("username", "use a token or a client certificate")):
        if user.data.get(name):
            raise user.error(name, f"is not supported, Kubernetes itself removed it: {instead}")
    try:
        if access.server.startswith("https:"):
            access._context(access.cert, access.key)
    except (OSError, ValueError) as error:
        raise KubeConfigError(
            f"kubeconfig {path}: the certificates of {cluster.where} or {user.where} cannot be used: {error}"
        ) from None
    return access


def _is_header(text: str) -> bool:
    """Whether it may be in an HTTP header: without control characters and lone surrogates."""
    return not any(character < " " or character == "\x7f" or "\ud800" <= character < "\ue000" for character in text)


def _impersonation(user: _Fields) -> list[tuple[str, str]]:
    if user.data.get("as-user-extra"):
        raise user.error("as-user-extra", "is not supported: give the identity rights of its own")
    headers = [("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    headers += [("Impersonate-Group", group) for group in user.strings("as-groups")]
    for name, value in headers:
        if not _is_header(value):
            raise user.error("as, as-uid, as-groups", f"cannot be sent as {name}: {value!r}")
    return [(name, value) for name, value in headers if value]


def _exec_plugin(user: _Fields, cluster: _Fields, clock: Clock) -> ExecPlugin:
    plugin = _Fields(user.file, f"{user.where}.exec", user.data["exec"])
    version, command = plugin.text("apiVersion"), plugin.text("command")
    if version not in _EXEC_VERSIONS:
        raise plugin.error("apiVersion", f"is {version!r}: supported are {' and '.join(_EXEC_VERSIONS)}")
    if plugin.text("interactiveMode") == "Always":
        raise plugin.error("interactiveMode", "is Always, but a controller has no terminal: use another user")
    if os.sep in command:
        command = str(user.file.parent / command)
    if "\0" in command or not shutil.which(command):
        hint = plugin.text("installHint")
        raise plugin.error("command", f"is {command!r}, which is not an executable here{'. ' + hint if hint else ''}")
    env = {}
    for entry in plugin.data.get("env") or []:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise plugin.error("env", "is not a list of {name, value}")
        env[entry["name"]] = str(entry.get("value", ""))
    return ExecPlugin(
        command,
        plugin.strings("args"),
        env,
        version,
        install_hint=plugin.text("installHint"),
        cluster=_exec_cluster(cluster) if plugin.flag("provideClusterInfo") else None,
        clock=clock,
    )


def _exec_cluster(cluster: _Fields) -> dict[str, Any]:
    info: dict[str, Any] = {"server": cluster.text("server")}
    ca = cluster.pem("certificate-authority")
    if ca:
        info["certificate-authority-data"] = base64.b64encode(ca.read()).decode()
    for name in ("tls-server-name", "proxy-url"):
        if cluster.text(name):
            info[name] = cluster.text(name)
    if cluster.flag("insecure-skip-tls-verify"):
        info["insecure-skip-tls-verify"] = True
    return info


__all__ = ["Access", "ExecPlugin", "FileText", "Pem", "environment_proxy", "from_kubeconfig", "in_cluster", "load"]
