# SPDX-License-Identifier: Apache-2.0
"""The parts of `make release-check`. Only that command runs the whole check, which takes minutes."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.packaging import artifact, environments, release, servers, tag, versions
from tools.packaging.environments import REPOSITORY

from .conftest import User

pytestmark = pytest.mark.timeout(600)


def test_a_user_installs_the_collection_from_galaxy(user: User, tmp_path: Path):
    (tarball,) = user.home.glob("outoftree-ccm-*.tar.gz")
    collections = release.install_collection(tarball, tmp_path)
    assert {path.name for path in collections.glob("*/*") if path.is_dir()} >= {"ccm", "core"}
    listed = json.loads((collections / "outoftree/ccm/FILES.json").read_text())["files"]
    assert {entry["name"] for entry in listed} >= set(artifact.tracked("plugins", "roles", "playbooks"))


def test_a_collection_with_the_signature_of_another_key_is_refused(user: User, tmp_path: Path):
    (tarball,) = user.home.glob("outoftree-ccm-*.tar.gz")
    (tmp_path / "other").mkdir()
    release.FOLDER.mkdir(parents=True, exist_ok=True)
    keyring, _ = release.with_keyring(tarball, tmp_path)
    _, other = release.with_keyring(tarball, tmp_path / "other")
    with pytest.raises(release.Failed, match="signature"):
        release.install_collection(tarball, tmp_path, (keyring, other))


def test_a_user_installs_the_wheel_from_an_index(tmp_path: Path):
    version = versions.current()
    done = [environments.UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, REPOSITORY / "runtime"]
    subprocess.run(done, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert version in release.install_wheel(wheel, version, tmp_path)


def test_a_wheel_of_another_version_is_noticed(tmp_path: Path):
    done = [environments.UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, REPOSITORY / "runtime"]
    subprocess.run(done, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with pytest.raises(release.Failed, match=r"outoftree-ccm==99\.0\.0"):
        release.install_wheel(wheel, "99.0.0", tmp_path)


@pytest.fixture
def registry() -> Iterator[tuple[servers.Registry, str]]:
    store = servers.Registry()
    with servers.serve(store) as host:
        yield store, f"http://{host}/v2/"


def ask(method: str, url: str, body: bytes = b"") -> urllib.request.addinfourl:
    answer = urllib.request.urlopen(urllib.request.Request(url, body, method=method), timeout=60)
    assert isinstance(answer, urllib.request.addinfourl) or answer.status
    return answer


def test_the_registry_keeps_what_is_what_its_digest_says(registry: tuple[servers.Registry, str]):
    store, url = registry
    host = url.removesuffix("/v2/")
    place = ask("POST", url + "a/b/blobs/uploads/").headers["Location"]
    ask("PATCH", host + place, b"one ")
    digest = servers._digest(b"one two")
    ask("PUT", f"{host}{place}?digest={digest}", b"two")
    assert ask("GET", f"{url}a/b/blobs/{digest}").read() == b"one two"
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask("PUT", f"{host}{place}?digest={digest}", b"three")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask("GET", f"{url}a/b/manifests/1.0.0")
    ask("PUT", f"{url}a/b/manifests/1.0.0", b"{}")
    assert ask("GET", f"{url}a/b/manifests/{servers._digest(b'{}')}").read() == b"{}"
    assert set(store.blobs) == {digest}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository that has only the files that declare or use the version."""
    for path in [*versions.DECLARED, "README.md", "changelogs/changelog.yaml", "plugins/modules/ccm_image.py"]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((REPOSITORY / path).read_text())
    (tmp_path / "changelogs/fragments").mkdir()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "One")
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


def test_the_files_agree_about_the_version():
    assert versions.current()


def test_a_version_is_set_everywhere(checkout: Path):
    before = versions.current(checkout)
    paths = [
        str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file() and ".git" not in path.parts
    ]
    assert set(versions.put("7.8.9", checkout, paths)) >= {*versions.DECLARED, "plugins/modules/ccm_image.py"}
    assert versions.current(checkout) == "7.8.9"
    assert f"outoftree-ccm:{before}" not in (checkout / "README.md").read_text()
    assert "version_added: 7.8.9\n" in (checkout / "plugins/modules/ccm_image.py").read_text()
    with pytest.raises(ValueError, match=r"'v1\.0' is not a version"):
        versions.put("v1.0", checkout, paths)
    (checkout / "galaxy.yml").write_text("version: 1.2.3\n")
    with pytest.raises(versions.Disagreement, match=r"runtime/pyproject.toml does not declare the version 1\.2\.3"):
        versions.current(checkout)


def test_a_tag_needs_a_release_that_is_prepared_and_committed(checkout: Path):
    version = versions.current(checkout)
    (checkout / "changelogs/changelog.yaml").write_text(f"ancestor:\nreleases: {{{version}: {{}}}}\n")
    (reason,) = tag.refusals(checkout)
    assert "has changes" in reason
    git(checkout, "commit", "-aqm", "Two")
    assert tag.refusals(checkout) == []
    git(checkout, "tag", version)
    (reason,) = tag.refusals(checkout)
    assert "is released once" in reason
    git(checkout, "tag", "-d", version)
    (checkout / "changelogs/fragments/1.yml").write_text("")
    (checkout / "changelogs/changelog.yaml").write_text("releases: {}\n")
    reasons = "\n".join(tag.refusals(checkout))
    assert "still has 1.yml" in reasons and f"has no release {version}" in reasons
