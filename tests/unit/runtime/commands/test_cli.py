# SPDX-License-Identifier: Apache-2.0
"""`ccm` and `kubectl ccm` find their commands, and the controller imports none of them."""

import json
import os
import subprocess
import sys

import pytest

from ccm import cli
from ccm.commands import completion
from ccm.options import command_line


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    listed = shown.partition("commands, each with a --help of its own:")[2]
    assert [line.split()[1] for line in listed.strip().splitlines()] == list(cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    try:
        status = cli.run(name, ["--help"])
    except SystemExit as ended:
        status = ended.code
    assert status == 0
    assert capsys.readouterr().out.startswith(f"usage: ccm {name}")


def test_shells_complete_every_command_of_the_package():
    modules = {name: command.module for name, command in cli.COMMANDS.items()}
    completed = {name: f"ccm.commands.{module}" for name, module in completion.COMMANDS.items()}
    assert completed == {name: module for name, module in modules.items() if module.startswith("ccm.commands.")}


@pytest.mark.parametrize(
    ("arguments", "status", "stream"),
    [([], 0, "out"), (["--help"], 0, "out"), (["--cloud-provider=sim"], 2, "err"), (["sim"], 2, "err")],
)
def test_kubectl_ccm_runs_commands_that_read_and_no_controller(arguments, status, stream, capsys):
    assert cli.kubectl(arguments) == status
    shown = getattr(capsys.readouterr(), stream)
    assert shown.startswith("usage: kubectl ccm COMMAND")
    assert all(f"kubectl ccm {name}" in shown for name in cli.READING) and "kubectl ccm sim" not in shown


def test_kubectl_ccm_passes_arguments_on(capsys):
    assert cli.kubectl(["plan", "--cloud-provider=none"]) == 2
    assert "unknown cloud provider 'none'" in capsys.readouterr().err


def test_the_controller_imports_no_command():
    """Imported commands would cost every replica memory and start time."""
    code = """
import json, sys
import ccm.cli, ccm.manager.logs, ccm.manager.process, ccm.options.command_line
print(json.dumps([name for name in sys.modules if name.startswith(("ccm.commands", "ccm.conformance"))]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []


def test_flags_without_a_meaning_for_a_command_are_accepted_and_not_shown(capsys):
    with pytest.raises(SystemExit):
        cli.run("plan", ["--help"])
    shown = capsys.readouterr().out
    assert "--cluster-cidr" in shown and "--output" in shown
    assert "--secure-port" not in shown and "--webhooks" not in shown and "--vmodule" not in shown
    options = command_line.parse(["--cloud-provider=sim", "--secure-port=0", "--vmodule=x=1"])
    assert options.secure_port == 0


@pytest.mark.parametrize(("name", "required"), [("plan", True), ("explain", False), ("doctor", False)])
def test_help_says_whether_the_provider_is_required(name, required, capsys):
    with pytest.raises(SystemExit):
        cli.run(name, ["--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert ("(required)" in words) is required


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--help"], 0), (["completion", "bash"], cli.PIPE_CLOSED), (["plan", "--help"], 0)]
)
def test_a_reader_that_has_enough_gets_no_traceback(arguments, status):
    """A closed pipe causes no traceback. argparse itself ignores the error when it prints help."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "ccm", *arguments]
        run = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (run.returncode, run.stderr) == (status, "")
