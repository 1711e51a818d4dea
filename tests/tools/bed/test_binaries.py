# SPDX-License-Identifier: Apache-2.0
"""The sources of binaries: a given folder, the cache, a release server (a local one here), the compiler."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bed import binaries, golang, paths
from bed.archive import architecture
from bed.errors import BedError
from bed.progress import Progress
from bed.versions import BINARIES, DEFAULT, KUBERNETES, VERSIONS, Version, find

VERSION = find("v1.36.3")
ETCD = f"#!/bin/sh\necho etcd Version: {VERSION.etcd.removeprefix('v')}\n"


class Release:
    """A release server: ``files`` by path, and the paths that were requested."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        release = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                release.asked.append(self.path)
                self._head()
                self.wfile.write(release.files.get(self.path, b""))

            def do_HEAD(self) -> None:
                self._head()

            def _head(self) -> None:
                self.send_response(200 if self.path in release.files else 404)
                self.send_header("Content-Length", str(len(release.files.get(self.path, b""))))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def add_kubernetes(self, name: str, content: bytes) -> None:
        path = f"/v1.36.3/bin/linux/{architecture()}/{name}"
        self.files[path] = content
        self.files[path + ".sha256"] = hashlib.sha256(content).hexdigest().encode()

    def add_etcd(self, content: bytes) -> None:
        release = f"etcd-{VERSION.etcd}-linux-{architecture()}"
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            info = tarfile.TarInfo(f"{release}/etcd")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        self.files[f"/{VERSION.etcd}/{release}.tar.gz"] = packed.getvalue()
        line = f"{hashlib.sha256(packed.getvalue()).hexdigest()}  {release}.tar.gz\n"
        self.files[f"/{VERSION.etcd}/SHA256SUMS"] = line.encode()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTOFTREE_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "kubernetes" / "v1.36.3"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    release = Release()
    for name in KUBERNETES:
        release.add_kubernetes(name, f"this is {name}".encode())
    release.add_etcd(ETCD.encode())
    monkeypatch.setenv(binaries.KUBERNETES_MIRROR, release.url)
    monkeypatch.setenv(binaries.ETCD_MIRROR, release.url)
    binaries._reached.clear()
    thread = threading.Thread(target=release.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield release
    release.server.shutdown()
    release.server.server_close()


@pytest.fixture
def progress() -> Progress:
    return Progress(io.StringIO())


def fill(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(ETCD if name == "etcd" else f"#!/bin/sh\necho Kubernetes v1.36.3\n# {name}\n")
        (folder / name).chmod(0o755)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing should be built")

    monkeypatch.setattr(binaries, "build", refuse)


@pytest.mark.usefixtures("no_compiler")
class TestDownload:
    def test_everything_comes_executable(self, cache: Path, release: Release, progress: Progress) -> None:
        assert binaries.ensure(VERSION, progress) == cache
        assert not binaries.missing(cache)
        content = {name: f"this is {name}" for name in KUBERNETES} | {"etcd": ETCD}
        assert {name: (cache / name).read_text() for name in BINARIES} == content
        assert sorted(path.name for path in cache.iterdir()) == sorted(BINARIES)

    def test_a_partly_filled_cache_is_completed(self, cache: Path, release: Release, progress: Progress) -> None:
        fill(cache, *(name for name in BINARIES if name != "kubelet"))
        binaries.ensure(VERSION, progress)
        assert (cache / "kubelet").read_text() == "this is kubelet"
        assert {path.rsplit("/", 1)[1] for path in release.asked} == {"kubelet", "kubelet.sha256"}

    def test_a_full_cache_asks_nobody(self, cache: Path, release: Release, progress: Progress) -> None:
        fill(cache, *BINARIES)
        binaries.ensure(VERSION, progress)
        assert release.asked == []

    def test_a_wrong_checksum_is_refused_and_nothing_kept(
        self, cache: Path, release: Release, progress: Progress
    ) -> None:
        path = f"/v1.36.3/bin/linux/{architecture()}/kubelet"
        release.files[path] = b"something else"
        with pytest.raises(BedError, match=r"kubelet has the SHA-256 .* damaged or not what it claims"):
            binaries.ensure(VERSION, progress)
        assert not list(cache.glob("kubelet*"))

    def test_a_wrong_etcd_is_refused(self, cache: Path, release: Release, progress: Progress) -> None:
        sums = release.files[f"/{VERSION.etcd}/SHA256SUMS"]
        release.files[f"/{VERSION.etcd}/SHA256SUMS"] = b"0" * 64 + sums[64:]
        with pytest.raises(BedError, match=r"etcd.*tar\.gz has the SHA-256"):
            binaries.ensure(VERSION, progress)
        assert not list(cache.glob("etcd*"))

    def test_checksums_of_the_operators_own_count_and_the_servers_do_not(
        self, cache: Path, release: Release, progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sums = tmp_path / "sums"
        lines = {path[1:]: hashlib.sha256(data).hexdigest() for path, data in release.files.items()}
        sums.write_text("".join(f"{checksum}  {path}\n" for path, checksum in lines.items()))
        monkeypatch.setenv(binaries.CHECKSUMS, str(sums))
        release.add_kubernetes("kubelet", b"a dishonest server has a checksum that agrees")
        with pytest.raises(BedError, match="kubelet has the SHA-256"):
            binaries.ensure(VERSION, progress)
        release.add_kubernetes("kubelet", b"this is kubelet")
        assert not binaries.missing(binaries.ensure(VERSION, progress))
        assert not [path for path in release.asked if path.endswith((".sha256", "SHA256SUMS"))]

    def test_a_binary_that_the_operators_file_does_not_name_is_refused(
        self, cache: Path, release: Release, progress: Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "sums").write_text("00  some/other/file\n")
        monkeypatch.setenv(binaries.CHECKSUMS, str(tmp_path / "sums"))
        with pytest.raises(BedError, match=r"OUTOFTREE_SHA256SUMS=.* has no checksum of http"):
            binaries.ensure(VERSION, progress)
        assert not [path for path in release.asked if not path.endswith("/")]

    def test_an_empty_checksum_file_is_refused(self, cache: Path, release: Release, progress: Progress) -> None:
        release.files[f"/v1.36.3/bin/linux/{architecture()}/kubelet.sha256"] = b"\n"
        with pytest.raises(BedError, match="its checksum file says nothing"):
            binaries.ensure(VERSION, progress)


class TestBuildInstead:
    @pytest.fixture
    def built(self, monkeypatch: pytest.MonkeyPatch) -> list[Version]:
        calls: list[Version] = []

        def build(version: Version, folder: Path, _: Progress) -> None:
            calls.append(version)
            fill(folder, *binaries.missing(folder))

        monkeypatch.setattr(binaries, "build", build)
        return calls

    def test_a_server_without_the_release(
        self, cache: Path, release: Release, progress: Progress, built: list[Version]
    ) -> None:
        release.files.clear()
        binaries.ensure(VERSION, progress)
        assert built == [VERSION]

    def test_a_server_that_refuses_connections(
        self, cache: Path, release: Release, progress: Progress, built: list[Version], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(binaries.KUBERNETES_MIRROR, "http://127.0.0.1:1")
        monkeypatch.setenv(binaries.ETCD_MIRROR, "http://127.0.0.1:1")
        binaries.ensure(VERSION, progress)
        assert built == [VERSION]

    def test_a_server_that_is_silent_is_given_up_soon(
        self, cache: Path, release: Release, progress: Progress, built: list[Version], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def hang(*_: object, **__: object) -> None:
            time.sleep(60)
            raise TimeoutError

        monkeypatch.setattr(binaries, "CONNECT_SECONDS", 0.1)
        monkeypatch.setattr(binaries.urllib.request, "urlopen", hang)
        started = time.monotonic()
        binaries.ensure(VERSION, progress)
        assert built == [VERSION]
        assert time.monotonic() - started < 60

    def test_downloads_can_be_forbidden(
        self, cache: Path, release: Release, progress: Progress, built: list[Version], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(binaries.KUBERNETES_MIRROR, "none")
        binaries.ensure(VERSION, progress)
        assert (built, release.asked) == ([VERSION], [])


class TestBuild:
    @pytest.fixture(autouse=True)
    def go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(golang, "ensure", lambda _: Path("/go"))

    @staticmethod
    def compiler(commands: list[tuple[str, ...]], fails: str = "") -> Callable[..., str]:
        """Return a stand-in for Go that writes programs as `go build` does: to the folder or file that -o names."""

        def compile_(*command: str, cwd: str, **_: object) -> str:
            assert (Path(cwd) / "go.mod").is_file()
            commands.append(command)
            at = command.index("-o") + 1
            target, packages = Path(command[at]), command[at + 1 :]
            for package in packages:
                if fails and package.endswith(fails):
                    raise BedError("out of memory")
                program = target / package.rpartition("/")[2] if target.is_dir() else target
                program.write_text("compiled")
            return ""

        return compile_

    @pytest.mark.parametrize("version", VERSIONS.values(), ids=list(VERSIONS))
    def test_all_of_kubernetes_is_one_build(self, tmp_path: Path, progress: Progress, version: Version) -> None:
        commands: list[tuple[str, ...]] = []
        binaries.build(version, tmp_path, progress, self.compiler(commands))
        assert [command[-1] for command in commands] == [
            "go.etcd.io/etcd/server/v3",
            "k8s.io/kubernetes/cmd/kube-proxy",
        ]
        assert {path.name for path in tmp_path.iterdir()} == set(BINARIES)
        assert f"gitVersion={version.kubernetes}" in " ".join(commands[1])

    def test_only_what_is_missing_is_compiled_and_appears_complete(self, cache: Path, progress: Progress) -> None:
        fill(cache, *(name for name in BINARIES if name not in ("etcd", "kubelet")))
        (cache / "build.tmp").mkdir()
        (cache / "build.tmp" / "kubelet").write_text("half of it, of a build that was killed")
        commands: list[tuple[str, ...]] = []
        binaries.build(VERSION, cache, progress, self.compiler(commands))
        assert [command[-1] for command in commands] == ["go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kubelet"]
        assert {path.name for path in cache.iterdir()} == set(BINARIES)
        assert (cache / "kubelet").read_text() == "compiled"

    def test_a_build_that_breaks_off_keeps_etcd_and_nothing_that_is_incomplete(
        self, cache: Path, progress: Progress
    ) -> None:
        cache.mkdir(parents=True)
        with pytest.raises(BedError, match="out of memory"):
            binaries.build(VERSION, cache, progress, self.compiler([], fails="kubelet"))
        assert "etcd" not in binaries.missing(cache)
        assert set(binaries.missing(cache)) == set(KUBERNETES)


@pytest.mark.usefixtures("no_compiler")
class TestGivenBinaries:
    def test_complete_ones_of_the_version_are_used(
        self, cache: Path, tmp_path: Path, progress: Progress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = tmp_path / "given"
        fill(given, *BINARIES)
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
        assert binaries.ensure(VERSION, progress) == given
        assert not cache.exists()

    def test_incomplete_ones_are_passed_over_aloud(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = tmp_path / "given"
        fill(given, "etcd", "kube-apiserver", "kubectl")
        fill(cache, *BINARIES)
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
        out = io.StringIO()
        assert binaries.ensure(VERSION, Progress(out)) == cache
        assert "is not used: it lacks kubeadm, kubelet" in out.getvalue()

    def test_those_of_another_version_are_passed_over(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = tmp_path / "given"
        fill(given, *BINARIES)
        (given / "kubelet").write_text("#!/bin/sh\necho Kubernetes v1.30.0\n")
        fill(cache, *BINARIES)
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
        out = io.StringIO()
        assert binaries.ensure(VERSION, Progress(out)) == cache
        assert "its kubelet is v1.30.0, not v1.36.3" in out.getvalue()


def test_make_and_the_integration_tests_have_the_default_of_the_bed() -> None:
    makefile = re.findall(r"^KUBERNETES_VERSION \?= (.*)$", (paths.REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    cluster = re.findall(r'^VERSION = "(.*)"$', (paths.REPOSITORY / "tests/integration/cluster.py").read_text(), re.M)
    assert (makefile, cluster) == ([DEFAULT], [DEFAULT])


def test_files_are_read_by_the_parser_of_the_default() -> None:
    kubernetes = (paths.BED / "kubernetes" / find(DEFAULT).module / "go.mod").read_text()
    parser = (paths.BED / "kubernetes_yaml" / "go.mod").read_text()
    modules = re.findall(r"^(?:require|\t)\s*(\S+/yaml\S* v\S+)", parser, re.MULTILINE)
    assert len(modules) == 2
    assert [module for module in modules if not re.search(rf"^\t{re.escape(module)}\b", kubernetes, re.MULTILINE)] == []


def test_an_unknown_version_lists_the_known() -> None:
    with pytest.raises(BedError, match=r"1\.12 is not one the bed knows: choose from v1\.30\.4, v1\.36\.3, v1\.37\.2"):
        find("1.12")


@pytest.mark.parametrize(
    ("text", "version"),
    [("go version go1.26.0 linux/amd64", (1, 26)), ("go version go1.24rc1 linux/arm64", (1, 24)), ("", (0, 0))],
)
def test_go_says_its_version(text: str, version: tuple[int, int]) -> None:
    assert golang.parse_version(text) == version


class TestEtcd:
    def test_one_of_another_version_is_replaced_and_all_else_stays(
        self, cache: Path, release: Release, progress: Progress, no_compiler: None
    ) -> None:
        fill(cache, *BINARIES)
        (cache / "etcd").write_text("#!/bin/sh\necho etcd Version: 3.6.1\n")
        binaries.ensure(VERSION, progress)
        assert (cache / "etcd").read_text() == ETCD
        assert "Kubernetes v1.36.3" in (cache / "kubelet").read_text()
        assert all(path.startswith(f"/{VERSION.etcd}/") for path in release.asked)

    @pytest.mark.parametrize("version", VERSIONS.values(), ids=list(VERSIONS))
    def test_its_module_has_the_version_that_clusters_are_told(self, version: Version) -> None:
        text = (paths.BED / "kubernetes" / version.etcd_module / "go.mod").read_text()
        assert re.findall(r"go\.etcd\.io/etcd/server/v3 (v\S+)", text) == [version.etcd]
