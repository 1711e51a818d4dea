# SPDX-License-Identifier: Apache-2.0
"""`make newcomer`: runs the commands of the pages for newcomers as written, in containers without this project.

    python -m tools.packaging.newcomer [--system debian-12] [--part operator]

A bare Debian 12 (Python 3.11) and a bare Ubuntu 24.04 (Python 3.12), without Go and without a compiler, come from
debootstrap and stay in the cache. The commands come from the pages. Stand-ins replace Galaxy (a server on loopback) and
a cluster (files and processes, with a real API server). Packages of Python and of the distribution come from the
servers that this machine uses. Each command is printed with its time; the first that fails ends the run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bed import images, locks, machines, paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run
from tests.integration.cluster import ApiServer, MissingBinaries, binaries
from tests.integration.collection import machine
from tests.integration.collection.test_layouts import HOSTS, Cluster
from tests.ports import free_port
from tools.docs.commands import commands

from . import artifact, environments, servers
from .environments import REPOSITORY

README = "README.md"
MIGRATE = "docs/how-to/migrate.md"
UPGRADE = "docs/how-to/upgrade.md"
PROVIDER = "docs/providers/your-own.md"
EXAMPLES = ("runtime/examples/ccm-provider-acme/README.md", "runtime/examples/ccm-controller-acme/README.md")
CONTRIBUTING = "CONTRIBUTING.md"
#: Beginnings of commands that do not run here, because an image needs a base from a registry, and the playbooks need a
#: cluster (molecule runs them). HERE: endings of such commands that run here nevertheless.
ELSEWHERE = ("podman ", "ansible-playbook -i inventory.yml outoftree.ccm.")
HERE = ("outoftree.ccm.preflight", "outoftree.ccm.site --check --diff")
CERTIFICATES = "/etc/ssl/certs"
#: Seconds for one part.
PATIENCE = "3600"
#: Marks a line of the script's output that says which command starts.
_MARK = "\x1e"


class Failed(Exception):
    """A command of a page failed; the message has the command and its output."""


@dataclass(frozen=True)
class System:
    """The arguments with which debootstrap gets a distribution."""

    suite: str
    mirror: str
    options: tuple[str, ...] = ()
    script: tuple[str, ...] = ()


SYSTEMS = {
    "debian-12": System("bookworm", images.debian_mirror()),
    # Debian has no key of Ubuntu: TLS shows whose packages these are. debootstrap has one script for all of Ubuntu.
    "ubuntu-24.04": System(
        "noble",
        "https://archive.ubuntu.com/ubuntu",
        ("--no-check-gpg", "--components=main,universe"),
        ("/usr/share/debootstrap/scripts/gutsy",),
    ),
}


def root_of(name: str, progress: Progress) -> Path:
    """Return the root folder of a system, made once. Containers write to a layer above it."""
    system = SYSTEMS[name]
    root = paths.cache() / "newcomer" / name
    with locks.held(f"newcomer-{name}"):
        if not root.exists():
            with (
                progress.step(f"A bare {name} by debootstrap"),
                tempfile.TemporaryDirectory(dir=paths.cache()) as scratch,
            ):
                made = Path(scratch) / "root"
                options = ("--variant=minbase", "--include=ca-certificates", *system.options)
                run("debootstrap", *options, system.suite, str(made), system.mirror, *system.script, timeout=1800)
                root.parent.mkdir(parents=True, exist_ok=True)
                made.rename(root)
    return root


@dataclass(frozen=True)
class World:
    """The surroundings of a newcomer: a folder that the container sees at the same path, and servers on loopback."""

    folder: Path
    galaxy: str
    kubeconfig: Path

    @property
    def repository(self) -> Path:
        """Return the repository from which newcomers clone."""
        return self.folder / "ccm.git"


def checkout(folder: Path) -> None:
    """Make a repository with the files of the checkout as they are now."""
    for path in artifact.tracked():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((REPOSITORY / path).read_bytes())
        target.chmod((REPOSITORY / path).stat().st_mode)
    who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q", "-b", "main"), ("add", "-f", "."), ("commit", "-qm", "Now")):
        run("git", *who, *arguments, cwd=str(folder))


@contextlib.contextmanager
def world() -> Iterator[World]:
    """Yield the surroundings of a newcomer, and remove them when the block is left."""
    with contextlib.ExitStack() as then:
        folder = Path(then.enter_context(tempfile.TemporaryDirectory(prefix="newcomer")))
        checkout(folder / "ccm.git")
        galaxy = then.enter_context(servers.serve(servers.Galaxy(artifact.repacked("kubernetes.core", folder))))
        (folder / "apiserver").mkdir()
        apiserver = ApiServer(folder / "apiserver")
        then.callback(apiserver.close)
        hosts(apiserver, folder)
        yield World(folder, f"http://{galaxy}/", apiserver.kubeconfig())


def hosts(apiserver: ApiServer, folder: Path) -> None:
    """Make a control plane and a worker that the container can enter, and the sample inventory with their names."""
    cluster = Cluster(apiserver, folder)
    sample = yaml.safe_load((REPOSITORY / "docs/inventories/kubeadm.yml").read_text())["all"]
    sample["vars"] |= {
        "ansible_become": False,
        "ansible_connection": "local",
        "ccm_install_kubeconfig": str(apiserver.kubeconfig()),
        "ccm_runtime_cloud_provider": "sim",
        "ccm_runtime_cloud_config": "endpoint: http://127.0.0.1:1\nproject: demo\ntoken: demo-token\n",
    }
    for group, name in (("kube_control_plane", "kubeadm-cp"), ("kube_node", "kubeadm-worker")):
        made = cluster.add(name, HOSTS[name])
        for script in (made.folder / "python", *(made.folder / "bin").iterdir()):
            script.write_text(script.read_text().replace(sys.executable, "/usr/bin/python3"))
        sample["children"][group]["hosts"] = {name: {"ansible_python_interpreter": str(made.folder / "python")}}
    (folder / "inventory.yml").write_text(yaml.safe_dump({"all": sample}))


@contextlib.contextmanager
def container(name: str, root: Path, here: World) -> Iterator[str]:
    """Run a container of a system until the block is left. It is privileged, because hosts are namespaces in it."""
    label = f"outoftree-newcomer-{name}-{os.getpid()}"
    program = Path(machine.__file__).resolve()
    seen = [CERTIFICATES, str(program)] + [path for path in ("/etc/pip.conf",) if Path(path).exists()]
    mounts = [f"{path}:{path}:ro" for path in seen] + [f"{here.folder}:{here.folder}"]
    mounts.append(f"{binaries() / 'kubectl'}:/usr/local/bin/kubectl:ro")
    variables = {
        "ANSIBLE_GALAXY_SERVER": here.galaxy,
        "KUBECONFIG": str(here.kubeconfig),
        "LANG": "C.UTF-8",
        "SSL_CERT_FILE": f"{CERTIFICATES}/ca-certificates.crt",
    }
    options = [word for mount in mounts for word in ("--volume", mount)]
    options += [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
    machines.podman(
        "run", "--detach", "--rm", "--name", label, "--network", "host", "--privileged", *machines.limits(), *options,
        "--rootfs", f"{root}:O", "sleep", "infinity",
    )  # fmt: skip
    try:
        yield label
    finally:
        machines.podman("rm", "--force", "--time", "0", label, check=False)


def needed(page: str) -> str:
    """Return the command of a page that installs what the page needs, but without podman, which nothing here uses.
    Raises Failed if the page has no such command."""
    found = re.search(r"`(apt\s+install\s[^`]+)`", (REPOSITORY / page).read_text())
    if not found:
        raise Failed(f"{page} does not say what to install")
    return re.sub(r"\s+", " ", found[1]).replace(" podman", "")


def shown(page: str) -> list[str]:
    """Return the commands of a page that run here."""
    return [each for each in commands(page) if not each.startswith(ELSEWHERE) or each.endswith(HERE)]


CLONE = "git clone https://github.com/outoftree/ccm && cd ccm"


def operator(here: World) -> list[str]:
    """Return README's commands, then those of the operator's page and of the page about upgrades, in one checkout."""
    inventory = f"cp {here.folder}/inventory.yml ."
    readme = [each for each in shown(README) if not each.startswith("make ")]
    first = next(place for place, command in enumerate(readme) if command.startswith("ansible-playbook"))
    upgrade = shown(UPGRADE)
    return [needed(README), *readme[:first], inventory, *readme[first:], needed(MIGRATE), *shown(MIGRATE), *upgrade]


def from_git(_: World) -> list[str]:
    """Return README's commands that install from git without a checkout, after those that they depend on."""
    text = (REPOSITORY / README).read_text()
    lines = re.findall(r"`((?:pip|ansible-galaxy collection) install '?git\+[^`]+)`", text)
    if len(lines) != 2:
        raise Failed(f"{README} has {len(lines)} lines that install from git")
    environment = [each for each in shown(README) if each.startswith(("python3 -m venv", "pip install 'ansible-core"))]
    return [needed(README), *environment, *lines, "ccm --help > /dev/null", "ansible-doc outoftree.ccm.ccm_node_info"]


def provider(_: World) -> list[str]:
    """Return the commands of the provider's page in a checkout, and of the examples' READMEs, with free ports."""
    port, other = str(free_port()), str(free_port())
    # The commands after the wheel need an image and a cluster. molecule/own_provider runs them.
    page = [each.replace("9450", port) for each in shown(PROVIDER) if not each.startswith("ansible-playbook")]
    story = [needed(README), CLONE, *page, "deactivate", "python3 -m venv ~/examples", "source ~/examples/bin/activate"]
    for example in EXAMPLES:
        # The controller would run for ever here. tests/integration/runtime/test_your_own_controller.py runs it.
        mine = [each for each in shown(example) if not each.startswith("ccm --cloud-provider=sim")]
        story += [f"cd ~/ccm/{Path(example).parent}", *(each.replace("9450", other) for each in mine)]
    return story


def contributor(_: World) -> list[str]:
    """Return the set-up of CONTRIBUTING.md, and `make quick` with one folder of tests."""
    return [needed(CONTRIBUTING), CLONE, *shown(CONTRIBUTING), "make quick TESTS=tests/unit/runtime/options"]


PARTS = {"operator": operator, "from-git": from_git, "provider": provider, "contributor": contributor}


def play(system: str, root: Path, here: World, part: str) -> None:
    """Run one part in a container of its own. Raises Failed."""
    settings = [
        "set -eo pipefail",
        "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
        "mkdir -p /root && cd /root && export HOME=/root",
        "echo 'APT::Get::Assume-Yes \"true\";' > /etc/apt/apt.conf.d/yes",
        "apt-get -qq update",
    ]
    story = PARTS[part](here)
    script = "\n".join(settings)
    for number, command in enumerate(story):
        script += f"\nprintf '\\n{_MARK}%s\\n' {number}\n{command}"
        if command.startswith("apt install"):
            script += f"\ngit config --global url.file://{here.repository}.insteadOf https://github.com/outoftree/ccm"
            script += "\ngit config --global safe.directory '*'"
    (here.folder / "script").write_text(script)
    with container(system, root, here) as label:
        process = subprocess.Popen(
            ("podman", "--runtime", "runc", "exec", label, "timeout", PATIENCE, "bash", f"{here.folder}/script"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        began, said, now = time.monotonic(), "", "(preparation)"
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(_MARK):
                report(system, part, time.monotonic() - began, now)
                began, said, now = time.monotonic(), "", story[int(line[1:])].splitlines()[0]
            else:
                said += line
        if process.wait():
            raise Failed(f"{said}\n{system}, {part}: `{now}` failed after {time.monotonic() - began:.0f} s")
        report(system, part, time.monotonic() - began, now)


def report(system: str, part: str, seconds: float, command: str) -> None:
    print(f"{system:12}  {part:11}  {seconds:6.1f} s  {command}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="only this one; may be repeated")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; may be repeated")
    asked = parser.parse_args()
    try:
        for system in asked.system or SYSTEMS:
            root = root_of(system, Progress())
            with world() as here:
                for part in asked.part or PARTS:
                    play(system, root, here, part)
    except (Failed, BedError, MissingBinaries, environments.NoPython) as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
