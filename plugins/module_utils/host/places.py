# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides whether a file can be replaced, and whether the change survives a reboot.

A change writes a new file next to the old one and renames it. The module uses only the standard library of Python 3.8, because it runs on
managed nodes.
"""

from __future__ import annotations

import array
import fcntl
import os
import platform
import re
import struct
from typing import Iterator, List, NamedTuple

#: Flags of a file (chattr): it cannot be changed, or only be appended to. A file with either flag cannot be replaced.
IMMUTABLE, APPEND_ONLY = 0x10, 0x20

#: File systems in memory.
VOLATILE = ("tmpfs", "ramfs")

#: Folders that the system empties at each start, whatever is mounted there.
EMPTIED = ("/run/", "/var/run/", "/dev/shm/")

#: Free bytes and inodes that a change needs besides the size of the file.
SPACE, INODES = 64 * 1024, 2


class Mount(NamedTuple):
    """A mounted file system, with the options of the mount (such as C(ro)) and its type."""

    point: str
    options: List[str]
    kind: str


def mounts(text: str) -> List[Mount]:
    """Parse C(/proc/self/mountinfo) (proc(5)). A later mount hides an earlier one at the same path."""
    points = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if dash and len(fields) > 5:
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[4])
            points.append(Mount(point, fields[5].split(","), more[0]))
    return points


def of_this_host() -> List[Mount]:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as handle:
            return mounts(handle.read())
    except OSError:
        return []


def below(path: str, known: List[Mount]) -> Iterator[Mount]:
    """Yield the mounts in which a path lies, the effective one first."""
    parents = [mount for mount in known if path == mount.point or path.startswith(mount.point.rstrip("/") + "/")]
    yield from sorted(reversed(parents), key=lambda mount: -len(mount.point))


def attributes(path: str) -> int:
    """Return the inode flags of a file or folder (as lsattr shows them), 0 if they cannot be read."""
    # _IOR('f', 1, long). These architectures encode the direction differently.
    read = 1 << 30 if re.match(r"ppc|powerpc|mips|sparc|alpha", platform.machine()) else 2 << 30
    buffer = array.array("L", [0])
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.ioctl(descriptor, read | struct.calcsize("l") << 16 | ord("f") << 8 | 1, buffer, True)
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    return buffer[0] & 0xFFFFFFFF


def obstacle(path: str, known: List[Mount]) -> str:
    """Return why a file cannot be replaced or created, '' if nothing is in the way. C(path) has no links."""
    if not os.path.isabs(path):
        return ""  # such a path is already refused, and the loop below would not end
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    for place in [path, folder] if os.path.lexists(path) else [folder]:
        flags = attributes(place)
        if flags & (IMMUTABLE | APPEND_ONLY):
            letter = "i" if flags & IMMUTABLE else "a"
            return "{0} has the attribute {1} ({2}). Remove it with 'chattr -{1} {0}'".format(
                place, letter, "immutable" if letter == "i" else "append only")
    if any(mount.point == path for mount in known):
        return "it is a mount of its own, so no other file can take its place. Unmount it, or edit by hand the file that is mounted there"
    mount = next(below(folder, known), None)
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY or mount is not None and "ro" in mount.options:
        return "{0} is mounted read-only{1}. Remount it writable".format(folder, " at " + mount.point if mount else "")
    if space.f_files and space.f_favail < INODES:
        return "the file system of {0} has no free inodes. Remove files that nobody needs".format(folder)
    size = os.lstat(path).st_size if os.path.lexists(path) else 0
    if space.f_bavail * space.f_frsize < size + SPACE:
        return "the file system of {0} has no free space. Free some space".format(folder)
    return ""


def volatile(path: str, known: List[Mount]) -> str:
    """Return why a file is gone after a reboot, '' if it stays."""
    if path.startswith(EMPTIED):
        return "{0} is empty after each start of the host".format(next(place for place in EMPTIED if path.startswith(place)).rstrip("/"))
    mount = next(below(path, known), None)
    return "{0} is in memory ({1})".format(mount.point, mount.kind) if mount is not None and mount.kind in VOLATILE else ""
