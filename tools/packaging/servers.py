# SPDX-License-Identifier: Apache-2.0
"""Stand-ins on loopback for what a release is published to: a container registry, Galaxy, and a package index."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

#: Status, headers, body.
Answer = tuple[int, dict[str, str], bytes]
#: Returns the answer to a request. Arguments: method, path, query, body, and the server's address.
Application = Callable[[str, str, bytes, str, str], Answer]
_NOT_FOUND: Answer = (404, {}, b"")


@contextlib.contextmanager
def serve(application: Application) -> Iterator[str]:
    """Run an application until the block is left; yield HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def answer(self) -> None:
            kind = self.headers.get("Content-Type", "")
            status, headers, body = application(self.command, self.path, self.body(), kind, self.headers["Host"])
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_DELETE = do_GET = do_HEAD = do_PATCH = do_POST = do_PUT = answer

        def log_message(self, *_: object) -> None:
            """Log nothing: nobody reads the log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Registry:
    """A container registry in memory: as much of the OCI distribution API as a push and a pull need."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self._uploads: dict[str, bytes] = {}

    def __call__(self, method: str, path: str, body: bytes, kind: str, host: str) -> Answer:
        where = urlsplit(path)
        if where.path == "/v2/":
            return 200, {}, b"{}"
        found = re.fullmatch(r"/v2/(.+)/(blobs|manifests)/(uploads/.*|[^/]+)", where.path)
        if not found:
            return _NOT_FOUND
        name, what, reference = found.groups()
        if what == "manifests":
            return self._manifest(method, reference, body, kind)
        if reference.startswith("uploads/"):
            return self._upload(method, name, reference, parse_qs(where.query), body)
        content = self.blobs.get(reference)
        return _NOT_FOUND if content is None else (200, {"Docker-Content-Digest": reference}, content)

    def _manifest(self, method: str, reference: str, body: bytes, kind: str) -> Answer:
        if method == "PUT":
            self.manifests[reference] = self.manifests[_digest(body)] = (kind, body)
            return 201, {"Docker-Content-Digest": _digest(body)}, b""
        if reference not in self.manifests:
            return _NOT_FOUND
        kind, body = self.manifests[reference]
        return 200, {"Content-Type": kind, "Docker-Content-Digest": _digest(body)}, body

    def _upload(self, method: str, name: str, reference: str, query: dict[str, list[str]], body: bytes) -> Answer:
        upload = f"uploads/{len(self._uploads)}" if method == "POST" else reference
        self._uploads[upload] = self._uploads.get(upload, b"") + body
        headers = {"Location": f"/v2/{name}/blobs/{upload}", "Range": f"0-{max(len(self._uploads[upload]) - 1, 0)}"}
        if method != "PUT":
            return 202, headers, b""
        content = self._uploads[upload]
        if query["digest"] != [_digest(content)]:
            return 400, {}, b"digest mismatch"
        self.blobs[_digest(content)] = content
        return 201, {"Docker-Content-Digest": _digest(content)}, b""


class Galaxy:
    """A Galaxy server with the collections of these tarballs: the part of its API v3 that an installation uses."""

    _COLLECTIONS = "/api/v3/collections"

    def __init__(self, *tarballs: Path, signatures: dict[str, list[str]] | None = None) -> None:
        """`signatures`: name of a tarball -> the signatures of its manifest."""
        self.signatures = signatures or {}
        self.tarballs = {path.name: path for path in tarballs}
        self.collections = {}
        for path in tarballs:
            with tarfile.open(path) as tar:
                manifest = tar.extractfile("MANIFEST.json")
                assert manifest is not None, path
                about = json.loads(manifest.read())["collection_info"]
            self.collections[about["namespace"], about["name"], about["version"]] = (about, path)

    def __call__(self, method: str, path: str, body: bytes, kind: str, host: str) -> Answer:
        place = urlsplit(path).path.rstrip("/")
        if place == "/api":
            return self._json({"available_versions": {"v3": "v3/"}})
        if place.startswith("/download/") and place.removeprefix("/download/") in self.tarballs:
            return 200, {}, self.tarballs[place.removeprefix("/download/")].read_bytes()
        for (namespace, name, version), (about, tarball) in self.collections.items():
            versions = f"{self._COLLECTIONS}/{namespace}/{name}/versions"
            href = f"{versions}/{version}/"
            listed = {"version": version, "href": href}
            if place == versions:
                return self._json({"meta": {"count": 1}, "links": {"next": None}, "data": [listed]})
            if place == href.rstrip("/"):
                about_it = {
                    "namespace": {"name": namespace},
                    "collection": {"name": name},
                    "download_url": f"http://{host}/download/{tarball.name}",
                    "artifact": {"sha256": hashlib.sha256(tarball.read_bytes()).hexdigest()},
                    "metadata": {"dependencies": about["dependencies"]},
                    "signatures": [{"signature": text} for text in self.signatures.get(tarball.name, ())],
                }
                return self._json(listed | about_it)
            if place == f"{self._COLLECTIONS}/{namespace}/{name}":
                return self._json({"namespace": namespace, "name": name, "highest_version": listed})
        return _NOT_FOUND

    @staticmethod
    def _json(answer: object) -> Answer:
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()


class Index:
    """A package index with these wheels and sdists (PEP 503)."""

    def __init__(self, *files: Path) -> None:
        self.files = {path.name: path for path in files}

    def __call__(self, method: str, path: str, body: bytes, kind: str, host: str) -> Answer:
        place = urlsplit(path).path
        if place.startswith("/files/") and place.removeprefix("/files/") in self.files:
            return 200, {}, self.files[place.removeprefix("/files/")].read_bytes()
        found = re.fullmatch(r"/simple/([a-z0-9-]+)/", place)
        names = [name for name in self.files if found and name.split("-")[0].replace("_", "-") == found[1]]
        if not names:
            return _NOT_FOUND
        links = "".join(
            f'<a href="/files/{name}#{_digest(self.files[name].read_bytes()).replace(":", "=")}">{name}</a>'
            for name in names
        )
        return 200, {"Content-Type": "text/html"}, f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
