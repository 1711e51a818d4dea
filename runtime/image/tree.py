# SPDX-License-Identifier: Apache-2.0
"""Copies what the controller needs into an empty folder, which becomes the image. The Containerfile runs it.

That is Python without what only developers use, the environment /opt/ccm, the libraries that these link, and the CA
certificates of the distribution. There is no shell, no package manager and no pip. Nothing here depends on the
architecture.

Python's own modules and those of others are there as byte code alone, which halves their size and starts as fast. Ours
keep their source beside it, for tracebacks.
"""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

ENVIRONMENT = Path("/opt/ccm")
#: Left out of Python's own library: what is for developers, for screens, and for databases.
UNUSED = {
    "__pycache__", "config", "curses", "dbm", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3",
    "pydoc_data", "site-packages", "sqlite3", "test", "tests", "tkinter", "turtledemo", "venv",
}  # fmt: skip
UNUSED_MODULES = re.compile(
    r"(_tkinter|_sqlite3|_dbm|_gdbm|_curses.*|readline|nis|_crypt|ossaudiodev|_test.*|_xx.*|xx.*)\..*"
)
#: Left out of packages: sources of what is compiled, and declarations for type checkers.
LEFT_OUT = {".c", ".h", ".pxd", ".pxi", ".pyi", ".pyx"}
CERTIFICATES = Path("/usr/share/ca-certificates/mozilla")
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def main(root: Path) -> None:
    library = Path(sysconfig.get_path("stdlib"))
    copy(library, root, lambda path: path.name in UNUSED or path.name.startswith("config-") or unused_module(path))
    copy(ENVIRONMENT, root, lambda path: path.suffix in LEFT_OUT or path.name == "__pycache__")
    for link in chain(ENVIRONMENT / "bin" / "python"):
        place(link, root)
    for file in sorted(linked(elf_files(root), root)):
        place(Path(file), root)
    configuration(root)
    compile_all(root, library)


def unused_module(path: Path) -> bool:
    return path.parent.name == "lib-dynload" and UNUSED_MODULES.fullmatch(path.name) is not None


def inside(root: Path, path: Path | str) -> Path:
    """Return where an absolute path is in the image."""
    return root / str(path).lstrip("/")


def copy(folder: Path, root: Path, left_out: object) -> None:
    assert callable(left_out)

    def ignored(where: str, names: list[str]) -> list[str]:
        return [name for name in names if left_out(Path(where) / name)]

    shutil.copytree(folder, inside(root, folder), symlinks=True, ignore=ignored)


def chain(link: Path) -> Iterator[Path]:
    """Yield a link, what it leads to, and so on, up to the file."""
    while link.is_symlink():
        yield link
        link = link.parent / link.readlink()
    yield link


def place(path: Path, root: Path) -> None:
    target = inside(root, path.parent.resolve() / path.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() and not target.is_symlink():
        shutil.copy2(path, target, follow_symlinks=False)


def elf_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def linked(files: Iterable[Path], root: Path) -> set[str]:
    """Return the libraries that these files link, as ldd reports them, each with the links that lead to it. Raises
    SystemExit if the base image does not have one of them."""
    found: set[str] = set()
    for file in files:
        original = Path("/") / file.relative_to(root)
        said = subprocess.run(["ldd", original], capture_output=True, text=True, check=False).stdout
        if missing := re.findall(r"(\S+) => not found", said):
            sys.exit(f"{original} links {', '.join(missing)}, which the base image does not have")
        for text in re.findall(r"(/\S+) \(0x", said):
            if not text.startswith(f"{ENVIRONMENT}/"):
                found |= {str(each) for each in chain(Path(text))}
    # glibc opens this one by name when a thread ends.
    for folder in {Path(each).parent for each in found}:
        if (folder / "libgcc_s.so.1").exists():
            found |= {str(each) for each in chain(folder / "libgcc_s.so.1")}
    return found


def configuration(root: Path) -> None:
    """Write the files for users, groups and the look-up of names, and the CA certificates. These come from the
    distribution's package and not from /etc, which a build may mount."""
    texts = {
        "/etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
        "/etc/group": "root:x:0:\nnonroot:x:65532:\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        BUNDLE: "".join(each.read_text() for each in sorted(CERTIFICATES.glob("*.crt"))),
    }
    if not texts[BUNDLE]:
        sys.exit(f"{CERTIFICATES} is empty: the base image needs the package ca-certificates")
    for path, text in texts.items():
        inside(root, path).parent.mkdir(parents=True, exist_ok=True)
        inside(root, path).write_text(text)
    inside(root, "/tmp").mkdir()
    inside(root, "/tmp").chmod(0o1777)
    trusted = inside(root, ssl.get_default_verify_paths().openssl_cafile)
    trusted.parent.mkdir(parents=True, exist_ok=True)
    if not trusted.exists():
        trusted.symlink_to(BUNDLE)
    for name in ("os-release", "ld.so.conf", "ld.so.conf.d"):
        source = Path("/etc") / name
        if source.is_dir():
            shutil.copytree(source, inside(root, source))
        elif source.exists():
            shutil.copy(source, inside(root, source))
    for top in ("bin", "lib", "lib64", "sbin"):  # as in the base, where these lead to /usr
        if (link := Path("/") / top).is_symlink() and not inside(root, link).exists():
            inside(root, link).symlink_to(link.readlink())
    # Libraries may be in folders that only this cache names, such as /usr/local/lib.
    subprocess.run(["ldconfig", "-r", root], check=True)
    shutil.rmtree(inside(root, "/var/cache/ldconfig"), ignore_errors=True)


def compile_all(root: Path, library: Path) -> None:
    """Compile all modules, always in the same order and with the same hashes, so that two builds are identical.

    Delete the sources, except those of `ccm` and of `bin` folders. A file that does not compile stays as it is.
    """
    ours = next(inside(root, ENVIRONMENT).glob("lib/python3*/site-packages")) / "ccm"
    for folder in (inside(root, library), inside(root, ENVIRONMENT)):
        for source in sorted(folder.rglob("*.py")):
            shown = str(Path("/") / source.relative_to(root))
            keeps_source = ours in source.parents or source.parent.name == "bin"
            target = None if keeps_source else str(source.with_suffix(".pyc"))
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            try:
                py_compile.compile(str(source), target, shown, doraise=True, invalidation_mode=mode)
            except py_compile.PyCompileError:
                continue  # a template, or for another Python: it stays as it is
            if not keeps_source:
                source.unlink()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        sys.exit("set PYTHONHASHSEED=0: otherwise byte code differs between builds")
    main(Path(sys.argv[1]))
