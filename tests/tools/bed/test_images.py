# SPDX-License-Identifier: Apache-2.0
"""Archives that need no registry, the keys that decide when an image is built again, and tags of vendors' images."""

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from bed import go_programs, images, keys, paths, versions
from bed.archive import Image, write
from bed.progress import Progress


def read(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        return file.read()


def test_an_archive_holds_images_whose_digests_are_true(tmp_path: Path) -> None:
    binary = tmp_path / "pause"
    binary.write_bytes(b"\x7fELF and so on")
    archive = tmp_path / "out" / "images.tar"
    write([Image("localhost/pause:1", (("/pause", binary),), entrypoint=("/pause",), user="65532")], archive)

    (entry,) = json.loads(read(archive, "manifest.json"))
    config = json.loads(read(archive, entry["Config"]))
    layer = read(archive, entry["Layers"][0])
    assert entry["RepoTags"] == ["localhost/pause:1"]
    assert entry["Config"] == hashlib.sha256(read(archive, entry["Config"])).hexdigest() + ".json"
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    assert (config["config"]["Entrypoint"], config["config"]["User"]) == (["/pause"], "65532")
    (tmp_path / "layer.tar").write_bytes(layer)
    with tarfile.open(tmp_path / "layer.tar") as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.mode, member.size) == ("pause", 0o755, len(binary.read_bytes()))


def test_the_same_content_gives_the_same_archive(tmp_path: Path) -> None:
    binary = tmp_path / "app"
    binary.write_bytes(b"content")
    for name in ("one", "two"):
        write([Image("localhost/app:1", (("/app", binary),))], tmp_path / name)
        binary.touch()
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_key_follows_content_names_and_modes_but_not_leavings(tmp_path: Path) -> None:
    source = tmp_path / "src" / "a.py"
    source.parent.mkdir()
    source.write_text("one")
    seen = [keys.of_sources([source.parent])]
    for change in (
        lambda: source.write_text("two"),
        lambda: source.chmod(0o755),
        lambda: source.rename(source.with_name("b.py")),
    ):
        change()
        seen.append(keys.of_sources([source.parent]))
    assert len(set(seen)) == len(seen)
    (source.parent / "__pycache__").mkdir()
    (source.parent / "__pycache__" / "a.pyc").write_text("compiled")
    assert keys.of_sources([source.parent]) == seen[-1]
    assert keys.of_sources([source.parent], "other base") != seen[-1]


@pytest.mark.parametrize(
    ("only", "made"),
    [
        (None, ["python", "node", "runtime", "simulator", "control_plane", "programs"]),
        ("runtime", ["python", "runtime"]),
        ("simulator", ["python", "simulator"]),
        ("vendor-sim", ["vendor-sim"]),
    ],
)
def test_another_vendors_image_is_made_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, only: str | None, made: list[str]
) -> None:
    seen: list[str] = []
    for name in ("python", "node", "runtime", "simulator", "control_plane", "programs"):
        monkeypatch.setattr(images, f"ensure_{name}", lambda *_, name=name: seen.append(name))
    monkeypatch.setattr(images, "ensure_vendor", lambda name, _: seen.append(f"vendor-{name}"))
    built: list[str] = []
    monkeypatch.setattr(images.binaries, "ensure", lambda version, _: built.append(version.kubernetes))
    images.ensure_all(versions.find(versions.DEFAULT), Progress(io.StringIO()), only)
    assert seen == made
    assert bool(built) == ("control_plane" in made)


@pytest.mark.parametrize("vendor", sorted(set(images.VENDORS) - {"sim"}))
def test_a_vendors_image_has_the_tag_of_the_release_that_it_holds(vendor: str) -> None:
    """The scenarios name the same tag, because their evidence is about this release only."""
    image = images.VENDORS[vendor].image
    program = go_programs.PROGRAMS[images.VENDORS[vendor].program]
    repository, _, tag = image.rpartition(":")
    assert f"\t{program.package.partition('/cmd/')[0]} {tag} " in (program.module / "go.mod").read_text()
    scenarios = "".join(path.read_text() for path in (paths.REPOSITORY / "molecule").rglob("*.yml"))
    assert set(re.findall(rf"{re.escape(repository)}:\S+", scenarios)) == {image}
