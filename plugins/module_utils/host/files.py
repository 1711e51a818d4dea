# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and programs of a managed host, accessed only by paths that root alone controls.

The modules run as root and open paths from units, processes and manifests. A link, FIFO or device of another user on such a path must
not decide what root reads, writes or runs. Therefore every path is checked component by component before it is used: root must own
each directory, only root may change its entries, and root must have created each link. The current user
counts as root. For files that are not programs, so do the accounts in INSTALLERS, and a group may write to the directories in
GROUP_WRITABLE. After that check, nobody else can replace a component.
The module uses only the standard library of Python 3.8, because it runs on managed nodes.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import pwd
import stat
from typing import List, Optional, Set

#: Maximum size of a file in bytes. The kubelet accepts manifests of up to 10 MiB, but real ones have a few KiB.
LIMIT = 1 << 20

#: Maximum number of paths that C(listing) and C(walk) return; they refuse a directory with more. A folder of manifests or drop-ins has a few.
ENTRIES = 1000

#: Maximum number of links in one path, as on Linux.
LINKS = 40

#: kubespray's owner of /etc/kubernetes and the manifests. The kubelet runs, as root, whatever this account writes there.
INSTALLERS = ("kube",)

#: Directories that distributions make writable for a group: on Ubuntu, rsyslog's group may write to /var/log.
GROUP_WRITABLE = ("/var/log",)

#: Directories in which programs are searched, in this order. PATH is not used, because it belongs to the user who started the run.
PROGRAMS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/bin", "/run/current-system/sw/bin")


class Untrusted(OSError):
    """A path that is not used: somebody other than the trusted C(owners) may control it, or it is not the expected kind of file. C(strerror): the reason."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EPERM, reason, path)


def owners() -> Set[int]:
    """Return the trusted user IDs: root, the account of an installer, and the current user."""
    accounts = {0, os.geteuid()}
    for name in INSTALLERS:
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(name).pw_uid
            if account < 1000:  # a higher ID is the account of a person
                accounts.add(account)
    return accounts


def resolve(path: str) -> str:
    """Return the canonical path without links. Parts that do not exist yet stay as they are. Raises Untrusted."""
    return _walk(path, owners(), False)


def _walk(path: str, trusted: Set[int], strict: bool) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise Untrusted(path, "it is not an absolute path")
    todo = path.split("/")[::-1]
    done, links = "/", 0
    shared = _check_directory("/", os.lstat("/"), trusted, strict)
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            done = os.path.dirname(done)
            shared = _check_directory(done, os.lstat(done), trusted, strict)
            continue
        here = os.path.join(done, name)
        try:
            info = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            rest = [part for part in reversed(todo) if part not in ("", ".")]
            if ".." in rest:
                raise Untrusted(path, "{0} does not exist".format(here)) from None
            return os.path.join(here, *rest)
        if stat.S_ISLNK(info.st_mode):
            links += 1
            if links > LINKS:
                raise Untrusted(path, "it has more than {0} links".format(LINKS))
            # In a directory that everybody may write to, another user may have made a hard link to root's link.
            if info.st_uid not in trusted or shared:
                raise Untrusted(path, "somebody other than root may have created the link {0}. Replace it with the file, or create the link as "
                                      "root in a directory that root owns".format(here))
            target = os.readlink(here)
            if target.startswith("/"):
                done, shared = "/", False
            todo += target.split("/")[::-1]
            continue
        if stat.S_ISDIR(info.st_mode):
            shared = _check_directory(here, info, trusted, strict)
        elif shared and (info.st_uid not in trusted or info.st_nlink > 1):
            raise Untrusted(path, "everybody may write to {0}, so somebody other than root may have created {1}".format(done, here))
        done = here
    return done


def _check_directory(path: str, info: os.stat_result, trusted: Set[int], strict: bool) -> bool:
    """Refuse a directory whose entries others may change; return whether others may add entries, as in C(/tmp). C(strict): make no
    exception for GROUP_WRITABLE. Raises Untrusted."""
    if info.st_uid not in trusted:
        raise Untrusted(path, "the directory {0} belongs to user {1}, not to root. Give it to root (chown root)".format(path, info.st_uid))
    theirs = info.st_mode & 0o002
    if info.st_mode & 0o020 and info.st_gid not in (0, os.getegid()) and (strict or path not in GROUP_WRITABLE):
        theirs = 0o020
    if theirs and not info.st_mode & stat.S_ISVTX:
        raise Untrusted(path, "users other than root may write to the directory {0}. Remove that permission (chmod go-w)".format(path))
    return bool(theirs)


def read(path: str, limit: int = LIMIT) -> Optional[bytes]:
    """Return the content of a regular file, None if it does not exist. Raises Untrusted, and OSError if it cannot be read."""
    real = resolve(path)
    try:
        info = os.lstat(real)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(info.st_mode):
        raise Untrusted(path, "it is not a regular file")
    # O_NONBLOCK avoids waiting for a writer, in case root has just replaced the file with a FIFO.
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as handle:
        content = handle.read(limit + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    if len(content) > limit:
        raise Untrusted(path, "it has more than {0} bytes".format(limit))
    return content


def read_text(path: str) -> Optional[str]:
    """Return a file's text, None if it does not exist or cannot be read."""
    try:
        content = read(path)
    except OSError:
        return None
    return None if content is None else content.decode("utf-8", "replace")


def tail(path: str, size: int) -> str:
    """Return the last bytes of a regular file as text. Raises Untrusted and OSError."""
    real = resolve(path)
    if not stat.S_ISREG(os.lstat(real).st_mode):
        raise Untrusted(path, "it is not a regular file")
    with os.fdopen(os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as handle:
        handle.seek(max(0, os.fstat(handle.fileno()).st_size - size))
        return handle.read(size).decode("utf-8", "replace")


def listing(directory: str, pattern: str = "*", limit: int = ENTRIES) -> List[str]:
    """Return the matching paths in a directory, sorted and without dotted names; [] if it does not exist. Raises Untrusted."""
    try:
        names = sorted(os.listdir(resolve(directory)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    wanted = [name for name in names if not name.startswith(".") and fnmatch.fnmatchcase(name, pattern)]
    if len(wanted) > limit:
        raise Untrusted(directory, "it has more than {0} entries".format(limit))
    return [os.path.join(directory, name) for name in wanted]


def walk(directory: str, limit: int = ENTRIES) -> List[str]:
    """Return the files of a directory and of those below it in the order of Go's filepath.WalkDir: dotted names count, links to directories do not.
    Return [] if the directory does not exist.

    Raises Untrusted.
    """
    paths: List[str] = []
    try:
        names = sorted(os.listdir(resolve(directory)), key=os.fsencode)
    except (FileNotFoundError, NotADirectoryError):
        return []
    for name in names:
        path = os.path.join(directory, name)
        inner = os.path.isdir(path) and not os.path.islink(path) and path.count("/") < LINKS
        paths += walk(path, limit) if inner else [] if os.path.isdir(path) else [path]
        if len(paths) > limit:
            raise Untrusted(directory, "it has more than {0} entries".format(limit))
    return paths


def program(path: str) -> str:
    """Return the path if it is safe to run: only root or the current user may change the program and the directories of its path. Raises OSError."""
    real = _walk(path, {0, os.geteuid()}, True)
    info = os.lstat(real)
    if not stat.S_ISREG(info.st_mode) or not info.st_mode & 0o111:
        raise Untrusted(path, "it is not a program")
    group = info.st_mode & 0o020 and info.st_gid not in (0, os.getegid())
    if info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o002 or group:
        raise Untrusted(path, "users other than root may change {0}. Give it to root (chown root, chmod go-w)".format(real))
    return path


def find_program(name: str) -> str:
    """Return the absolute path of an installed program. Raises FileNotFoundError, and Untrusted if only untrusted ones exist."""
    refused: Optional[Untrusted] = None
    for folder in PROGRAMS:
        try:
            return program(os.path.join(folder, name))
        except Untrusted as exc:
            refused = refused or exc
        except OSError:
            continue
    raise refused or FileNotFoundError(errno.ENOENT, "it is not installed in any of {0}".format(" ".join(PROGRAMS)), name)
