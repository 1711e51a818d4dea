# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The copy of a host's journal in the cluster: its form, its Secret, and when it is used.

Each Node with a journal has one Secret in C(kube-system). The journal on the host is used as long as it is readable. If the host lost it,
the copy is used. If the copy is newer than the journal on the host, a person must decide.

Pure and stdlib-only (Python 3.8): it takes Secrets as dicts from the API, and a host's answer about its journal as data.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import posixpath
import zlib
from typing import Any, Dict, List, NamedTuple, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.host.journal import DAMAGED, LIMIT, MISSING, READABLE, ROLLED_BACK, UNREADABLE

VERSION = 1

#: Maximum size of a Secret's data in bytes, a limit of the API server.
SECRET_LIMIT = 1 << 20

KEY = "journal"
LABEL = "ccm.outoftree.dev/journal-copy"
SELECTOR = LABEL + "=true"

#: Annotations: the Node, the journal's identity, its number of writes, the machine, the SHA-256 of the data, and whether the host was restored.
NODE, ID, SERIAL, MACHINE, SHA256, RESTORED = ("ccm.outoftree.dev/journal-" + word for word in (
    "node", "id", "serial", "machine", "sha256", "restored"))

#: Values of C(Choice.source): which journal is used for a host.
LOCAL, COPY, NONE = "local", "copy", "none"

#: Folders of a journal's contents.
FOLDERS = ("originals", "written")


class BadCopy(ValueError):
    """A copy that cannot be used; the message says why."""


class Choice(NamedTuple):
    """Which journal is used. C(problem): what a person must decide first. C(note): the reason, or ''."""

    source: str
    problem: str
    note: str


# -- the form ---------------------------------------------------------------------------------------------------------


def encode(journal: Dict[str, Any], node: str, machine: str) -> str:
    """Return the copy of a journal (C(Journal.exported())) as text: compressed JSON in base64. The same journal gives the same text."""
    data = dict(journal, version=VERSION, node=node, machine=machine)
    return base64.b64encode(gzip.compress(json.dumps(data, sort_keys=True).encode("utf-8"), mtime=0)).decode("ascii")


def decode(text: str) -> Dict[str, Any]:
    """Return the journal in a copy, with its C(node) and C(machine). Raises BadCopy."""
    try:
        unpacking = zlib.decompressobj(wbits=31)  # gzip
        content = unpacking.decompress(base64.b64decode(text, validate=True), LIMIT)
        data = json.loads(content.decode("utf-8")) if unpacking.eof else None
    except (ValueError, zlib.error, RecursionError) as exc:
        raise BadCopy("it cannot be read: {0}".format(exc)) from exc
    if not unpacking.eof:
        raise BadCopy("it is incomplete, or larger than {0} MiB".format(LIMIT >> 20))
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise BadCopy("its version is not {0}".format(VERSION))
    shape = {"id": str, "serial": int, "node": str, "machine": str, "files": dict, "contents": dict}
    wrong = [key for key, kind in shape.items() if not isinstance(data.get(key), kind)]
    wrong += [str(path) for path, content in data["contents"].items() if not _is_content(path, content)] if not wrong else []
    if wrong:
        raise BadCopy("it does not have the form of a copy: {0!r} is wrong".format(wrong[0][:200]))
    return data


def _is_content(path: str, content: Any) -> bool:
    """Return whether a path stays inside the folders of a journal, and its content is base64."""
    if not isinstance(content, str) or posixpath.normpath(path) != path or path.split("/")[0] not in FOLDERS or "/" not in path:
        return False
    try:
        base64.b64decode(content, validate=True)
    except binascii.Error:
        return False
    return True


# -- the Secret -------------------------------------------------------------------------------------------------------


def secret_name(node: str) -> str:
    """Return the name of a Node's Secret: readable, a DNS subdomain, and unique for each Node."""
    return "outoftree-ccm-journal-{0}-{1}".format(node[:200].rstrip("-."), hashlib.sha256(node.encode("utf-8")).hexdigest()[:12])


def place(node: str) -> str:
    return "Secret kube-system/" + secret_name(node)


def size(text: str) -> int:
    """Return how many bytes a copy takes in a Secret."""
    return len(base64.b64decode(text))


def secret(node: str, text: str) -> Dict[str, Any]:
    """Return the Secret of a copy. Raises BadCopy if the text is not a copy of this Node's journal."""
    data = decode(text)
    if data["node"] != node:
        raise BadCopy("it belongs to the Node {0!r}".format(data["node"][:253]))
    notes = {NODE: node, ID: data["id"], SERIAL: str(data["serial"]), MACHINE: data["machine"], SHA256: _checksum(text), RESTORED: "false"}
    labels = {LABEL: "true", "app.kubernetes.io/managed-by": "outoftree.ccm", "app.kubernetes.io/component": "journal-copy"}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {KEY: text},
            "metadata": {"name": secret_name(node), "labels": labels, "annotations": notes}}


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _notes(secret: Dict[str, Any]) -> Dict[str, str]:
    return (secret.get("metadata") or {}).get("annotations") or {}


def text_of(secret: Dict[str, Any]) -> str:
    """Return the copy in a Secret, '' if it has none."""
    return (secret.get("data") or {}).get(KEY) or ""


def is_restored(secret: Dict[str, Any]) -> bool:
    """Return whether the host was restored after the copy was written, so that nothing is left to roll back from it."""
    return _notes(secret).get(RESTORED) == "true"


def checked(secret: Dict[str, Any], node: str) -> Dict[str, Any]:
    """Return the copy in a Secret. Raises BadCopy if it was altered or belongs to another Node."""
    if _checksum(text_of(secret)) != _notes(secret).get(SHA256):
        raise BadCopy("its checksum does not match its content")
    data = decode(text_of(secret))
    if data["node"] != node or _notes(secret).get(NODE) != node:
        raise BadCopy("it belongs to the Node {0!r}".format(data["node"][:253]))
    return data


# -- which one is used --------------------------------------------------------------------------------------------------


def local_of(answer: Any) -> Optional[Dict[str, Any]]:
    """Return a host's answer about its journal (C(state), C(id), C(serial), C(machine)), None if it has another form."""
    shape = {"state": str, "id": str, "serial": int, "machine": str}
    if not isinstance(answer, dict) or not all(isinstance(answer.get(key), kind) for key, kind in shape.items()):
        return None
    return answer if answer["state"] in (MISSING, READABLE, UNREADABLE, DAMAGED, ROLLED_BACK) else None


def choose(local: Dict[str, Any], secret: Optional[Dict[str, Any]], node: str) -> Choice:
    """Return which journal is used for a host. C(secret) is the Node's Secret, None if there is none."""
    absent = local["state"] in (MISSING, ROLLED_BACK)
    own = Choice(NONE if absent else LOCAL, "", "")
    if secret is None or is_restored(secret) or ends(local, secret):
        return own
    where, lost = place(node), "the journal on the host is {0}".format(MISSING if absent else local["state"])
    try:
        data = checked(secret, node)
    except BadCopy as exc:
        return own if local["state"] == READABLE else own._replace(note="{0}, and its copy in {1} cannot be used: {2}".format(lost, where, exc))
    same = local["id"] == data["id"]
    if local["state"] == READABLE:
        return own if not same or data["serial"] <= local["serial"] else own._replace(problem=(
            "the copy of its journal in {0} is newer than the journal on the host (write {1}, but write {2} on the host). The host may have been "
            "restored to an older state. To use the journal on the host, delete that Secret. To use the copy, move journal.json away on the "
            "host".format(where, data["serial"], local["serial"])))
    if data["machine"] and data["machine"] != local["machine"]:
        return own._replace(note="{0}, and its copy in {1} belongs to another machine with the same name".format(lost, where))
    if local["state"] == DAMAGED and not (same and data["serial"] >= local["serial"]):
        return own._replace(note="{0}, and its copy in {1} is older or belongs to another journal".format(lost, where))
    return Choice(COPY, "", "journal: copy in {0}, because {1}".format(where, lost))


def ends(local: Dict[str, Any], secret: Dict[str, Any]) -> bool:
    """Return whether the host itself records that it was restored after the copy was written, so that nothing is left to roll back."""
    notes = _notes(secret)
    return local["state"] == ROLLED_BACK and notes.get(ID) == local["id"] and notes.get(SERIAL, "").isdigit() \
        and int(notes[SERIAL]) < local["serial"]


def is_stale(local: Dict[str, Any], secret: Optional[Dict[str, Any]], node: str) -> bool:
    """Return whether a readable journal has no up-to-date copy and may get one."""
    return local["state"] == READABLE and (secret is None or not obstacle(local, secret, node)) and not is_kept(local, secret)


def is_kept(local: Dict[str, Any], secret: Optional[Dict[str, Any]]) -> bool:
    """Return whether the Secret has the current state of the journal."""
    if secret is None or is_restored(secret) or _checksum(text_of(secret)) != _notes(secret).get(SHA256):
        return False
    return (_notes(secret).get(ID), _notes(secret).get(SERIAL)) == (local["id"], str(local["serial"]))


def obstacle(local: Dict[str, Any], secret: Dict[str, Any], node: str) -> str:
    """Return why a journal must not replace the existing copy, '' if it may."""
    try:
        data = checked(secret, node)
    except BadCopy:
        return ""  # the existing copy is useless
    where = place(node)
    if is_restored(secret):
        return ""
    if data["id"] and data["id"] != local["id"]:
        return ("{0} has a copy of another journal of this Node, which was not rolled back. It was not replaced. Delete that Secret when you no "
                "longer need it".format(where))
    if data["serial"] > local["serial"]:
        return "{0} has a newer copy (write {1}, but write {2} on the host). It was not replaced".format(where, data["serial"], local["serial"])
    return ""


def claimed_once(nodes: Dict[str, str]) -> List[str]:
    """Return the hosts whose Node no other host claims. If several hosts claim a Node, no copy is used for them, because at most one of them is right."""
    names = list(nodes.values())
    return [host for host, node in nodes.items() if names.count(node) == 1]
