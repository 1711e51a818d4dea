# SPDX-License-Identifier: Apache-2.0
"""The callback outoftree.ccm.grouped: the output of a run over many hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .ansible import PROGRAM, REPOSITORY

HOSTS = [f"worker-{number}" for number in range(1, 8)]
PLAY: dict[str, Any] = {
    "name": "Change the workers",
    "hosts": "all",
    "gather_facts": False,
    "strategy": "linear",
    "serial": [3, 4],
    "max_fail_percentage": 100,
    "tasks": [
        {"name": "Look", "ansible.builtin.set_fact": {"seen": True}},
        {
            "name": "Change all but one",
            "ansible.builtin.command": "true",
            "changed_when": "inventory_hostname != 'worker-3'",
        },
        {
            "name": "Say something",
            "ansible.builtin.debug": {"msg": "to be read"},
            "when": "inventory_hostname == 'worker-2'",
        },
        {
            "name": "Say more",
            "ansible.builtin.debug": {"msg": "first line\nsecond line"},
            "when": "inventory_hostname == 'worker-2'",
        },
        {
            "name": "Refuse",
            "ansible.builtin.fail": {"msg": "the disk is full"},
            "when": "inventory_hostname == 'worker-5'",
        },
    ],
}


#: The parts of a kubeconfig for an API server that does not answer.
CONTEXTS: tuple[tuple[str, str, Any], ...] = (
    ("clusters", "cluster", {"server": "http://127.0.0.1:1"}),
    ("users", "user", {"token": "t"}),
    ("contexts", "context", {"cluster": "x", "user": "x"}),
)
#: A module that works, and that a later release will remove.
OLD = """from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({})
module.deprecate("use something newer", version="99.0", collection_name="acme.tools")
module.exit_json(changed=True)
"""


def run(folder: Path, *arguments: str, play: dict[str, Any] = PLAY, deprecations: bool = False, status: int = 2) -> str:
    inventory, book = folder / "inventory.yml", folder / "play.yml"
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = dict.fromkeys(HOSTS, local)
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    book.write_text(json.dumps([play]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    settings = {
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "outoftree.ccm.grouped",
        "ANSIBLE_DEPRECATION_WARNINGS": str(deprecations).lower(),
        "PYTHONPYCACHEPREFIX": str(REPOSITORY / "build" / "pycache"),
    }
    command = [PROGRAM, "-i", inventory, book, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=kept | settings, text=True, capture_output=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("short"))


def test_hosts_that_a_task_changed_have_one_line(short: str) -> None:
    changed = [line for line in short.splitlines() if line.startswith("changed:")]
    assert changed == [
        "changed: 2 hosts: worker-1, worker-2: Change all but one",
        "changed: 4 hosts: worker-4...worker-7: Change all but one",
    ]


def test_messages_and_failures_are_all_there(short: str) -> None:
    lines = short.splitlines()
    assert "ok: [worker-2] to be read" in lines and "TASK [Say something]" not in short
    assert "TASK [Say more]" in short and "first line" in short and "second line" in short
    assert "worker-5" in short
    assert short.count("the disk is full") == 1


def test_the_reason_why_a_host_is_unreachable_is_shown_once(tmp_path: Path) -> None:
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    play = {"hosts": "worker-1", "gather_facts": False, "vars": gone, "tasks": [{"ansible.builtin.command": "true"}]}
    said = " ".join(run(tmp_path, play=play, status=4).split())
    assert said.count("UNREACHABLE!") == said.count("Connection refused") == 1


def test_a_failed_module_of_the_collection_shows_its_message_alone(tmp_path: Path) -> None:
    """This holds for a loop, too. With -v, the whole result is shown."""
    named = {name: [{"name": "x", kind: value}] for name, kind, value in CONTEXTS}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({"kind": "Config", "current-context": "x", **named}))
    lease = {"outoftree.ccm.ccm_run_lease": {"name": "{{ item }}", "kubeconfig": str(kubeconfig)}}
    looped = {**lease, "loop": ["a", "b"], "ignore_errors": True}
    tasks = [looped, {**lease, "vars": {"item": "c"}}]
    play = {"hosts": "worker-1", "gather_facts": False, "tasks": tasks}
    said = run(tmp_path, play=play)
    for shown in said.split("=> ")[1:]:
        assert "msg:" in shown and "holder" not in shown and "process" not in shown and "changed:" not in shown, said
    assert said.count("msg:") == 3
    assert "holder" in run(tmp_path, "-v", play=play)


def test_an_error_of_the_playbook_itself_keeps_its_place(tmp_path: Path) -> None:
    broken = {"name": "Use a variable", "ansible.builtin.debug": {"msg": "{{ nobody_set_this }}"}}
    said = run(tmp_path, play={"hosts": "worker-1", "gather_facts": False, "tasks": [broken]})
    assert "nobody_set_this" in said and "play.yml" in said


def test_a_task_without_a_change_has_no_line(short: str) -> None:
    assert "Look" not in short


def test_a_play_of_several_batches_shows_its_name_once(short: str) -> None:
    assert short.count("PLAY [Change the workers]") == 1


def test_the_recap_has_one_line_for_hosts_of_which_the_same_is_known(short: str) -> None:
    recap = [line for line in short.partition("PLAY RECAP")[2].splitlines()[1:] if line.strip()]
    assert len(recap) == 3
    assert any(line.startswith("worker-5 :") and "failed=1" in line for line in recap)
    assert any(line.startswith("worker-3 :") and "changed=0" in line for line in recap)
    assert any(line.startswith("5 hosts: worker-1, worker-2, worker-4") and "changed=1 " in line for line in recap)


def test_items_of_a_loop_follow_the_name_of_their_task_in_each_batch(tmp_path: Path) -> None:
    loop = {"name": "Report", "ansible.builtin.debug": {"msg": "{{ item }}\nmore"}, "loop": ["one", "two"]}
    play = {"hosts": "worker-1,worker-2", "gather_facts": False, "serial": 1, "tasks": [loop]}
    lines = run(tmp_path, play=play, status=0).splitlines()
    begun = [number for number, line in enumerate(lines) if line.startswith("TASK [Report]")]
    items = [number for number, line in enumerate(lines) if line.startswith("ok: [worker-")]
    assert len(begun) == 2 and len(items) == 4 and begun[0] < items[0] < items[1] < begun[1] < items[2], lines


def test_with_v_it_is_the_default_output(tmp_path: Path) -> None:
    said = run(tmp_path, "-v")
    assert "TASK [Look]" in said
    assert len([line for line in said.splitlines() if line.startswith("changed: [worker-")]) == 6


@pytest.mark.parametrize(
    ("deprecations", "expected"),
    [
        (False, ["changed: [worker-1]: Use an old module"]),
        (True, ["changed: [worker-1]"]),
    ],
)
def test_a_deprecation_takes_a_line_only_if_ansible_shows_it(
    tmp_path: Path, deprecations: bool, expected: list[str]
) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "old.py").write_text(OLD)
    play = {"hosts": "worker-1", "gather_facts": False, "tasks": [{"name": "Use an old module", "old": {}}]}
    shown = run(tmp_path, play=play, deprecations=deprecations, status=0).splitlines()
    assert [line for line in shown if line.startswith("changed:")] == expected
    assert ("TASK [Use an old module]" in "\n".join(shown)) == deprecations


def test_a_long_message_is_broken_between_words_and_a_condition_is_left_out(tmp_path: Path) -> None:
    command = "ansible-playbook -i inventory.yml outoftree.ccm.site"
    message = "the kubelet did not become healthy, so " * 4 + f"run again: {command}"
    refuse = {"name": "Refuse", "ansible.builtin.assert": {"that": "1 == 2", "quiet": True, "fail_msg": message}}
    say = {"name": "Say", "ansible.builtin.debug": {"msg": message}}
    play = {"hosts": "worker-1", "gather_facts": False, "tasks": [say, refuse]}
    said = run(tmp_path, play=play)
    for shown in (said.partition("TASK [Refuse]")[0], said.partition("\nfatal: ")[2]):
        lines = shown.splitlines()
        assert max(map(len, lines)) <= 80 and message.partition("run again")[0].strip() in " ".join(shown.split())
        assert command in map(str.strip, lines), shown
    assert "evaluated_to" not in said and "assertion:" not in said
