# SPDX-License-Identifier: Apache-2.0
"""The copy of a journal in the cluster: its format, its Secret, and when it is used."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import pathlib
import re
import shutil
import zlib
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.host import journal as _journal
from ansible_collections.outoftree.ccm.plugins.module_utils.host import journal_copy
from ansible_collections.outoftree.ccm.plugins.module_utils.host.journal import (
    DAMAGED,
    MISSING,
    READABLE,
    ROLLED_BACK,
    UNREADABLE,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.host.journal_copy import (
    BadCopy,
    choose,
    decode,
    encode,
    is_stale,
    obstacle,
)
from hypothesis import given
from hypothesis import strategies as st

PATH = "/etc/default/kubelet"
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
NODES = st.lists(LABELS, min_size=1, max_size=6).map(".".join).filter(lambda name: len(name) <= 253)
#: The names that the API server accepts for a Secret.
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
CONTENTS = st.dictionaries(st.from_regex(r"(originals|written)/[a-z_]{1,20}", fullmatch=True), st.binary(max_size=200), max_size=5)


def journal(serial: int = 3, name: str = "a1", **contents: bytes) -> dict[str, Any]:
    return {"id": name, "serial": serial, "files": {},
            "contents": {"originals/" + key: base64.b64encode(value).decode() for key, value in contents.items()}}


def said(state: str = READABLE, serial: int = 3, name: str = "a1", machine: str = "m1") -> dict[str, Any]:
    return {"state": state, "id": name, "serial": serial, "machine": machine}


def secret(serial: int = 3, name: str = "a1", node: str = "w-1", machine: str = "m1") -> dict[str, Any]:
    made = journal_copy.secret(node, encode(journal(serial, name), node, machine))
    return made | {"metadata": made["metadata"] | {"resourceVersion": "1"}}


# -- names --------------------------------------------------------------------------------------------------------------


@given(NODES, NODES)
def test_each_node_has_a_secret_of_its_own_whose_name_is_valid(one: str, two: str) -> None:
    name = journal_copy.secret_name(one)
    assert host_facts.is_node_name(one) and SUBDOMAIN.fullmatch(name) and len(name) <= 253
    assert (name == journal_copy.secret_name(two)) == (one == two)


@pytest.mark.parametrize("one, two", [("a" * 200 + ".b", "a" * 200 + ".c"), ("w-1", "w-1.example"), ("a" * 199 + ".b", "a" * 199 + "-b")])
def test_names_that_begin_alike_have_other_secrets(one: str, two: str) -> None:
    names = {journal_copy.secret_name(node) for node in (one, two)}
    assert len(names) == 2 and all(SUBDOMAIN.fullmatch(name) for name in names)


@pytest.mark.parametrize(("node", "name"), [
    ("w-1", "outoftree-ccm-journal-w-1-0065abd00978"),
    ("a" * 199 + "bc", "outoftree-ccm-journal-" + "a" * 199 + "b-a46d8e83e0f5"),
])
def test_a_later_release_finds_a_secret_by_the_same_name(node: str, name: str) -> None:
    assert journal_copy.secret_name(node) == name


# -- the format ---------------------------------------------------------------------------------------------------------


@given(st.text(max_size=20), st.integers(min_value=0, max_value=10 ** 6), CONTENTS)
def test_what_is_packed_comes_back(name: str, serial: int, contents: dict[str, bytes]) -> None:
    given_ = {"id": name, "serial": serial, "files": {PATH: {"component": "kubelet"}},
              "contents": {path: base64.b64encode(content).decode() for path, content in contents.items()}}
    text = encode(given_, "w-1", "m1")
    assert decode(text) == given_ | {"version": 1, "node": "w-1", "machine": "m1"}
    assert encode(copy.deepcopy(given_), "w-1", "m1") == text
    assert base64.b64decode(text)[4:8] == bytes(4)  # gzip's field for the time is 0


@given(st.text(max_size=300))
def test_any_text_is_a_copy_or_refused(text: str) -> None:
    with pytest.raises(BadCopy):
        decode(text)


@given(st.data())
def test_no_altered_byte_goes_unseen(data: st.DataObject) -> None:
    """The copy is refused, whatever is altered in the Secret's data."""
    found = secret()
    raw = bytearray(base64.b64decode(found["data"]["journal"]))
    index = data.draw(st.integers(0, len(raw) - 1))
    raw[index] ^= data.draw(st.integers(1, 255))
    found["data"]["journal"] = base64.b64encode(bytes(raw)).decode()
    with pytest.raises(BadCopy):
        journal_copy.checked(found, "w-1")


@pytest.mark.parametrize("path", ["/etc/passwd", "originals/../../x", "originals/./x", "../originals/x", "originals", "backups/x", "originals//x"])
def test_a_copy_writes_nowhere_but_into_its_folders(path: str) -> None:
    with pytest.raises(BadCopy):
        decode(encode(journal() | {"contents": {path: ""}}, "w-1", ""))


@pytest.mark.parametrize("change", [{"files": []}, {"serial": "1"}, {"contents": {"originals/x": 1}}, {"contents": {"originals/x": "?"}}, {"id": None}])
def test_json_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadCopy):
        decode(encode(journal() | change, "w-1", ""))


def test_a_copy_that_unpacks_to_very_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_copy, "LIMIT", 2 << 20)
    with pytest.raises(BadCopy, match="incomplete, or larger than 2 MiB"):
        decode(base64.b64encode(gzip.compress(b" " * (3 << 20))).decode())


def test_the_order_of_keys_makes_no_other_copy() -> None:
    assert encode(dict(reversed(journal().items())), "w-1", "") == encode(journal(), "w-1", "")


@pytest.mark.parametrize(("content", "reason"), [
    pytest.param(gzip.compress(b"[]"), "version", id="a-list"),
    pytest.param(gzip.compress(b"null"), "version", id="nothing"),
    pytest.param(gzip.compress(json.dumps(journal() | {"version": 2, "node": "w-1", "machine": ""}).encode()), "version", id="a-later-version"),
    pytest.param(zlib.compress(b"{}"), "cannot be read", id="another-compression"),
])
def test_what_is_no_copy_of_this_version_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(BadCopy, match=reason):
        decode(base64.b64encode(content).decode())


def test_only_base64_is_a_copy() -> None:
    text = encode(journal(), "w-1", "")
    with pytest.raises(BadCopy, match="cannot be read"):
        decode(text[:8] + "\n" + text[8:])


# -- which journal is used ----------------------------------------------------------------------------------------------


def test_a_readable_journal_counts_and_a_lost_one_is_replaced() -> None:
    assert choose(said(), secret(), "w-1") == ("local", "", "")
    assert choose(said(serial=4), secret(), "w-1") == ("local", "", "")
    assert choose(said(name="other", serial=1), secret(serial=9), "w-1") == ("local", "", "")
    for state in (MISSING, UNREADABLE):
        source, problem, note = choose(said(state, 0, ""), secret(), "w-1")
        assert (source, problem) == ("copy", "")
        assert note == f"journal: copy in {journal_copy.place('w-1')}, because the journal on the host is {state}"
    assert choose(said(MISSING, 0, ""), None, "w-1") == ("none", "", "")
    assert choose(said(UNREADABLE, 0, ""), None, "w-1") == ("local", "", "")


def test_a_newer_copy_of_the_same_journal_is_a_persons_decision() -> None:
    source, problem, unused = choose(said(serial=2), secret(serial=3), "w-1")
    assert source == "local" and "(write 3, but write 2 on the host)" in problem and "delete that Secret" in problem
    assert "was not replaced" in obstacle(said(serial=2), secret(serial=3), "w-1")


def test_a_damaged_journal_is_replaced_by_a_copy_of_the_same_state_alone() -> None:
    assert choose(said(DAMAGED), secret(), "w-1").source == "copy"
    assert "is older or belongs to another journal" in choose(said(DAMAGED, serial=4), secret(), "w-1").note
    assert choose(said(DAMAGED, name="b2"), secret(), "w-1").source == "local"


@pytest.mark.threat("worker-cannot-change-others")
def test_a_copy_of_another_node_or_machine_or_with_another_content_is_not_used() -> None:
    foreign = secret(node="w-2")
    assert choose(said(MISSING, 0, ""), foreign, "w-1").source == "none"
    assert "it belongs to the Node 'w-2'" in choose(said(MISSING, 0, ""), foreign, "w-1").note
    for machine in ("m2", ""):  # a host without a machine ID is not trusted either
        choice = choose(said(MISSING, 0, "", machine), secret(), "w-1")
        assert choice.source == "none" and "belongs to another machine with the same name" in choice.note
    assert choose(said(MISSING, 0, "", "m1"), secret(machine=""), "w-1").source == "copy"
    altered = secret()
    altered["data"] = secret(serial=4)["data"]
    assert "its checksum does not match" in choose(said(MISSING, 0, ""), altered, "w-1").note
    with pytest.raises(BadCopy, match="belongs to the Node"):
        journal_copy.secret("w-2", encode(journal(), "w-1", ""))
    renamed = secret()
    renamed["metadata"]["annotations"][journal_copy.NODE] = "w-2"
    with pytest.raises(BadCopy, match="belongs to the Node"):
        journal_copy.checked(renamed, "w-1")


def test_a_long_name_of_another_node_is_cut_where_no_node_has_a_longer_one() -> None:
    long = "n" * 300
    with pytest.raises(BadCopy, match=f"^it belongs to the Node '{'n' * 253}'$"):
        journal_copy.secret("w-1", encode(journal(), long, ""))
    with pytest.raises(BadCopy, match=f"^it belongs to the Node '{'n' * 253}'$"):
        journal_copy.checked(secret(node=long), "w-1")


def test_a_host_that_was_restored_needs_no_copy() -> None:
    assert choose(said(ROLLED_BACK, 4), secret(), "w-1") == ("none", "", "")
    assert choose(said(ROLLED_BACK, 4, name="earlier"), secret(), "w-1").source == "copy"  # the host lost this journal after the rollback
    for serial in (3, 5):  # the host was put back to an older state
        assert choose(said(ROLLED_BACK, 3), secret(serial=serial), "w-1").source == "copy"
    marked = secret()
    marked["metadata"]["annotations"][journal_copy.RESTORED] = "true"
    assert choose(said(MISSING, 0, ""), marked, "w-1") == ("none", "", "")
    assert obstacle(said(name="new"), marked, "w-1") == "" and not journal_copy.is_kept(said(), marked)


@pytest.mark.threat("worker-cannot-change-others")
def test_a_copy_of_another_journal_is_not_replaced() -> None:
    assert "copy of another journal of this Node" in obstacle(said(name="b2", serial=9), secret(), "w-1")
    assert obstacle(said(serial=4), secret(), "w-1") == obstacle(said(), secret(), "w-1") == ""
    broken = secret()
    broken["data"] = {}
    assert obstacle(said(name="b2"), broken, "w-1") == ""


def test_stale_is_a_readable_journal_without_a_copy_as_new() -> None:
    assert is_stale(said(), None, "w-1") and is_stale(said(serial=4), secret(), "w-1")
    assert not is_stale(said(), secret(), "w-1") and not is_stale(said(MISSING, 0, ""), None, "w-1")
    assert not is_stale(said(serial=2), secret(), "w-1")


def test_what_a_host_says_of_its_journal_is_not_believed_in_any_form() -> None:
    for wrong in (None, [], {}, said() | {"serial": "9"}, said("fine"), said() | {"id": None}):
        assert journal_copy.local_of(wrong) is None
    assert journal_copy.local_of(said()) == said()
    assert journal_copy.claimed_once({"a": "w-1", "b": "cp-1", "c": "cp-1"}) == ["a"]


# -- on the host --------------------------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the folder of a journal with two files: one was changed twice, the other did not exist before."""
    directory = tmp_path / "state"
    _journal.Journal(str(directory)).record(PATH, "kubelet", "run-1", b"a\xff", b"b", 0o640, (0, 5), ["--cloud-provider="])
    _journal.Journal(str(directory)).record(PATH, "kubelet", "run-2", b"somebody else's", b"c", 0o640, (0, 5), [])
    _journal.Journal(str(directory)).record("/etc/new", "kubelet", "run-2", None, b"new", 0o644, (0, 0), [])
    return directory


def packed(directory: pathlib.Path) -> dict[str, Any]:
    return decode(encode(_journal.Journal(str(directory)).exported(), "w-1", "m1"))


def told(directory: pathlib.Path) -> dict[str, Any]:
    journal_ = _journal.Journal(str(directory))
    return {name: (journal_.baselines(name), journal_.files[name]["original"]) for name in journal_.files}


def test_a_journal_keeps_its_identity_and_counts_its_writes(host: pathlib.Path) -> None:
    before = _journal.found(str(host))
    assert before["state"] == READABLE and len(before["id"]) == 32 and before["serial"] == 3
    _journal.Journal(str(host)).forget("/etc/new")
    assert _journal.found(str(host)) == before | {"serial": 4}
    _journal.Journal(str(host)).forget(PATH)
    assert _journal.found(str(host)) == before | {"serial": 5, "state": ROLLED_BACK}
    _journal.Journal(str(host)).record(PATH, "kubelet", "run-3", b"a", b"b", 0o640, (0, 5), [])
    after = _journal.found(str(host))
    assert after["id"] != before["id"] and after["serial"] == 1


def test_a_lost_journal_comes_back_from_its_copy_as_it_was(host: pathlib.Path) -> None:
    copied, before = packed(host), told(host)
    shutil.rmtree(host)
    assert _journal.found(str(host))["state"] == MISSING
    foreseen = _journal.opened(str(host), copied)
    assert {name: foreseen.baselines(name) for name in foreseen.files} == {name: item[0] for name, item in before.items()}
    assert not host.exists()  # nothing was written
    _journal.opened(str(host), copied, adopt=True)
    assert told(host) == before and host.stat().st_mode & 0o777 == 0o700
    found = _journal.found(str(host))
    assert (found["id"], found["serial"]) == (copied["id"], copied["serial"] + 1)
    assert all(path.stat().st_mode & 0o77 == 0 for path in host.rglob("*"))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"version": 1, "files": {"x": {}}}', b'{"version": 9}', b"\xff", b'{"version": 1}'])
def test_an_unreadable_journal_is_moved_aside(content: bytes, host: pathlib.Path) -> None:
    copied, before = packed(host), told(host)
    (host / "journal.json").write_bytes(content)
    assert _journal.found(str(host)) == {"state": UNREADABLE, "id": "", "serial": 0}
    _journal.opened(str(host), copied, adopt=True)
    assert told(host) == before
    assert [path.read_bytes() for path in host.glob("journal.json.lost-*")] == [content]


def test_a_damaged_journal_is_repaired(host: pathlib.Path) -> None:
    copied, before = packed(host), told(host)
    victim = host / _journal.Journal(str(host)).files[PATH]["original"]["copy"]
    victim.write_bytes(b"altered")
    assert _journal.found(str(host))["state"] == DAMAGED
    with pytest.raises(_journal.JournalRefused, match="was altered"):
        _journal.Journal(str(host)).exported()
    _journal.opened(str(host), copied, adopt=True)
    assert told(host) == before


def test_a_readable_journal_is_not_touched_by_a_copy(host: pathlib.Path) -> None:
    copied = packed(host)
    _journal.Journal(str(host)).forget("/etc/new")
    before = {path: path.read_bytes() for path in host.rglob("*") if path.is_file()}
    assert set(_journal.opened(str(host), copied, adopt=True).files) == {PATH}
    assert {path: path.read_bytes() for path in host.rglob("*") if path.is_file()} == before


def test_tokens_of_k3s_stay_on_the_host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, directory = tmp_path / "config.yaml", tmp_path / "state"
    before, after = b"token: K10secret\nkubelet-arg: []\n", b"token: K10secret\nkubelet-arg: [cloud-provider=external]\n"
    _journal.Journal(str(directory)).record(str(config), "k3s", "run-1", before, after, 0o600, (0, 0), [])
    text = encode(_journal.Journal(str(directory)).exported(), "w-1", "")
    assert b"K10secret" not in gzip.decompress(base64.b64decode(text))
    assert not any(b"K10secret" in base64.b64decode(content) for content in decode(text)["contents"].values())
    shutil.rmtree(directory)
    now = {str(config): after}
    real = _journal.files.read
    monkeypatch.setattr(_journal.files, "read", lambda path, *limit: now[path] if path in now else real(path, *limit))
    _journal.opened(str(directory), decode(text), adopt=True)
    assert _journal.Journal(str(directory)).original(str(config)) == before
    # With another token, the placeholders cannot be replaced: the original is refused, not restored wrongly.
    shutil.rmtree(directory)
    now[str(config)] = after.replace(b"K10secret", b"K10rotated")
    with pytest.raises(_journal.JournalRefused, match="was altered"):
        _journal.opened(str(directory), decode(text)).original(str(config))


def test_a_journal_of_before_has_no_identity_until_it_is_written(host: pathlib.Path) -> None:
    data = json.loads((host / "journal.json").read_text())
    (host / "journal.json").write_text(json.dumps({key: data[key] for key in ("version", "files")}))
    assert _journal.found(str(host)) == {"state": READABLE, "id": "", "serial": 0}
    copied = journal_copy.secret("w-1", encode(_journal.Journal(str(host)).exported(), "w-1", ""))
    _journal.Journal(str(host)).forget("/etc/new")
    assert obstacle(_journal.found(str(host)), copied, "w-1") == ""
