# SPDX-License-Identifier: Apache-2.0
"""The network of a bed and the containers on it: the gateway and the nodes."""

from __future__ import annotations

import json
import re
import resource
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from bed import go_programs, images, paths, pythons
from bed.archive import names
from bed.documents import NODE_CONFIG
from bed.errors import BedError
from bed.plan import API_PORT, CLOUD_PORT, Node, Plan
from bed.progress import Progress
from bed.run import CommandFailed, in_parallel, run

# Every container and network of a bed carries this label with the bed's name.
LABEL = "dev.outoftree.bed"

GATEWAY_COMMAND = (
    "python", "-m", "ccm_simcloud", "--listen", f"0.0.0.0:{CLOUD_PORT}", "--config", "/etc/bed/cloud.yaml",
    "--state", "/var/lib/sim/state.db", "--fabric", "--fabric-interface", "eth0",
)  # fmt: skip
WITHOUT_CLOUD_COMMAND = ("sleep", "infinity")

# The gateway routes between the nodes and has no way out. Two nodes are neighbours on one wire. The last lines stop the
# gateway from sending redirects, which would make nodes bypass it, even after a route has been removed.
_GATEWAY_START = """\
set -e
ip -4 route flush default
ip route add unreachable default
echo 1 > /proc/sys/net/ipv4/ip_forward
for each in all default eth0; do
    echo 0 > /proc/sys/net/ipv4/conf/$each/rp_filter
    echo 0 > /proc/sys/net/ipv4/conf/$each/send_redirects
done
{dual_stack}exec "$@"
"""
_GATEWAY_DUAL_STACK = """\
ip -6 route add unreachable default metric 1
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
"""
# Before anything else runs in a node, the gateway becomes its default route. Otherwise a packet to a Pod that has no
# route would leave through the host, and might get an answer. Nodes accept no redirects either.
# On a cgroup v1 host, podman mounts the host's systemd hierarchy over the container's own. All nodes would share their
# units' and Pods' cgroups, and each kubelet would try to remove the others' Pods. Debian 13's systemd
# refuses such a host without the argument.
_NODE_START = """\
set -e
ip -4 route flush default
ip route add default via {gateway}
for each in all default eth0; do
    echo 0 > /proc/sys/net/ipv4/conf/$each/accept_redirects
done
{dual_stack}if [ "$(grep -c ' /sys/fs/cgroup/systemd ' /proc/self/mountinfo)" -gt 1 ]; then
    umount /sys/fs/cgroup/systemd/release_agent 2>/dev/null || true
    umount /sys/fs/cgroup/systemd
fi
exec /sbin/init SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1
"""
_NODE_DUAL_STACK = """\
ip -6 route add default via {gateway}
for each in all default eth0; do
    echo 0 > /proc/sys/net/ipv6/conf/$each/accept_ra
    echo 0 > /proc/sys/net/ipv6/conf/$each/accept_redirects
done
"""
# The umount is lazy, because the mount is in use as long as its program runs.
_INSTALL = """\
set -e
umount -l "/usr/bin/$1" 2>/dev/null || true
install -m 0755 "/opt/bed/$1" "/usr/bin/.$1"
mv "/usr/bin/.$1" "/usr/bin/$1"
rm "/opt/bed/$1"
"""
NODE_BINARIES = ("kubelet", "kubeadm", "kubectl", "kube-proxy")
CONTROL_PLANE_BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_BOOT_SECONDS = 60.0
INOTIFY_LIMITS = {"max_user_instances": 1024, "max_user_watches": 262144}


def podman(*arguments: str, check: bool = True, stdin: str | None = None, timeout: float = 600) -> str:
    """Run ``podman`` with the runtime that works on every host: crun refuses a hybrid cgroup v1 host."""
    return run("podman", "--runtime", "runc", *arguments, check=check, stdin=stdin, timeout=timeout)


def on(machine: str, *command: str, check: bool = True, stdin: str | None = None, timeout: float = 600) -> str:
    """Run ``command`` in the container ``machine``."""
    give = ["--interactive"] if stdin is not None else []
    return podman("exec", *give, machine, *command, check=check, stdin=stdin, timeout=timeout)


def write_file(machine: str, path: str, content: str, mode: str = "0644") -> None:
    """Write a file inside a container, and create its folder."""
    quoted = shlex.quote(path)
    script = f"mkdir -p $(dirname {quoted}) && umask 077 && cat > {quoted} && chmod {mode} {quoted}"
    on(machine, "sh", "-c", script, stdin=content)


def make_network(plan: Plan) -> None:
    """Create the bed's bridge as an internal network: podman gives nodes no default route, and the host neither
    forwards nor masquerades their packets. (With br_netfilter, even frames between nodes pass masquerade rules.)"""
    second = ("--ipv6", "--subnet", plan.subnet_6, "--gateway", plan.twin(plan.bridge)) if plan.dual_stack else ()
    try:
        podman(
            "network", "create", "--driver", "bridge", "--internal", "--disable-dns", "--subnet", plan.subnet,
            "--gateway", plan.bridge, *second, "--label", f"{LABEL}={plan.name}", plan.network,
        )  # fmt: skip
    except CommandFailed as error:
        if "already used" in error.output or "already being used" in error.output:
            raise BedError(f"the subnet {plan.subnet} is in use here: give another with --subnet") from error
        raise


def connect_host(plan: Plan) -> None:
    """Give the host the bridge's address .1, so that kubectl and curl work on the host: not every podman does so for an
    internal network. Also let frames between nodes pass, in case the host's firewall drops what it forwards."""
    bridge = podman("network", "inspect", "--format", "{{ .NetworkInterface }}", plan.network).strip()
    if f" {plan.bridge}/" not in run("ip", "-o", "-4", "address", "show", "dev", bridge):
        run("ip", "address", "add", f"{plan.bridge}/24", "dev", bridge)
    second = plan.twin(plan.bridge)
    if plan.dual_stack and f" {second}/" not in run("ip", "-o", "-6", "address", "show", "dev", bridge):
        run("ip", "address", "add", f"{second}/64", "dev", bridge, "nodad")
    for iptables in ("iptables", "ip6tables") if plan.dual_stack else ("iptables",):
        run(iptables, "--wait", "-I", "FORWARD", "-i", bridge, "-o", bridge,
            "-m", "comment", "--comment", f"{LABEL}={plan.name}", "-j", "ACCEPT")  # fmt: skip


def _disconnect_host(name: str) -> None:
    for iptables in ("iptables", "ip6tables"):
        # A kernel without IPv6 has no such table, and so no rule to remove.
        for rule in run(iptables, "--wait", "-S", "FORWARD", check=iptables == "iptables").splitlines():
            if f"{LABEL}={name}" in [word.strip('"') for word in rule.split()]:
                run(iptables, "--wait", "-D", *[word.strip('"') for word in rule.split()[1:]])


def _at(plan: Plan, address: str) -> list[str]:
    """Return the options of ``podman run`` for the addresses of a container."""
    return ["--ip", address, *(["--ip6", plan.twin(address)] if plan.dual_stack else [])]


def start_gateway(plan: Plan, cloud_yaml: Path) -> None:
    """Start the container that routes, and is the simulated cloud unless the plan has none."""
    command = GATEWAY_COMMAND if plan.cloud else WITHOUT_CLOUD_COMMAND
    podman(
        "run", "--detach", "--name", plan.gateway_name, "--hostname", plan.gateway_name,
        "--network", plan.network, *_at(plan, plan.gateway), "--label", f"{LABEL}={plan.name}",
        "--user", "0", "--privileged", "--http-proxy=false", *limits(),
        "--volume", f"{cloud_yaml}:/etc/bed/cloud.yaml:ro", "--volume", "/var/lib/sim",
        "--entrypoint", "sh", images.SIMULATOR_IMAGE, "-c",
        _GATEWAY_START.replace("{dual_stack}", _GATEWAY_DUAL_STACK if plan.dual_stack else ""), "gateway", *command,
    )  # fmt: skip


def start_forwarder(plan: Plan) -> None:
    """Start the forwarder in the gateway's network: one address for the API servers of several control planes."""
    servers = [f"{node.address}:{API_PORT}" for node in plan.control_planes]
    podman(
        "run", "--detach", "--name", plan.forwarder_name, "--network", f"container:{plan.gateway_name}",
        "--label", f"{LABEL}={plan.name}", "--user", "0", "--http-proxy=false", *limits(),
        "--volume", f"{paths.BED / 'gateway' / 'forward.py'}:/forward.py:ro", "--entrypoint", "python3",
        images.SIMULATOR_IMAGE, "/forward.py", str(API_PORT), *servers,
    )  # fmt: skip


def start_node(plan: Plan, node: Node, binaries: Path, config: Path) -> None:
    """Start a machine with systemd, a container runtime and the Kubernetes binaries, not yet in a cluster."""
    # kube-proxy stays in /usr/bin: the bed runs it, not kubespray.
    place = "/usr/local/bin" if plan.kubespray else "/usr/bin"
    mounts = [(name, "/usr/bin" if name == "kube-proxy" else place) for name in NODE_BINARIES]
    if node.control_plane:
        units = CONTROL_PLANE_BINARIES if plan.hard_way else ("etcd",) if plan.external_etcd or plan.kubespray else ()
        mounts += [(name, "/usr/local/bin") for name in units]
    mounted = [word for name, at in mounts for word in ("--volume", f"{binaries / name}:{at}/{name}:ro")]
    mounted += [word for name in node.system.programs for word in ("--volume", f"{_program(name)}:/usr/bin/{name}:ro")]
    if node.system.python:
        own = pythons.folder(node.system.python)
        mounted += ["--volume", f"{own}:{own}:ro"]
    stored = [word for place in (node.system.stores, "kubelet", "etcd") for word in ("--volume", f"/var/lib/{place}")]
    second = _NODE_DUAL_STACK.format(gateway=plan.twin(plan.gateway)) if plan.dual_stack else ""
    podman(
        "run", "--detach", "--name", node.name, "--hostname", node.name, "--network", plan.network,
        *_at(plan, node.address), "--dns", plan.gateway, "--label", f"{LABEL}={plan.name}", "--privileged",
        "--systemd=always", "--cgroupns=private", "--http-proxy=false", *limits(),
        "--tmpfs", "/run", "--tmpfs", "/tmp", *stored, *mounted,
        "--volume", f"{images.folder()}:/opt/bed/images:ro", "--volume", f"{config}:{NODE_CONFIG}:ro",
        images.of_node(node.system_name), "sh", "-c", _NODE_START.format(gateway=plan.gateway, dual_stack=second),
    )  # fmt: skip
    wait_until(
        lambda: _answers(node), f"{node.system.runtime} in {node.name}", _BOOT_SECONDS,
    )  # fmt: skip


def install(node: Node, binaries: Path, names: Sequence[str]) -> None:
    """Replace the mounted binaries with others, as a package does: running processes are not restarted."""
    for name in names:
        podman("cp", str(binaries / name), f"{node.name}:/opt/bed/{name}")
        on(node.name, "sh", "-c", _INSTALL, "install", name)


def _program(name: str) -> Path:
    return go_programs.ensure(name, Progress())


def _answers(node: Node) -> bool:
    try:
        on(node.name, *node.system.asks.split())
    except CommandFailed:
        return False
    return True


def load_images(node: Node, archives: Sequence[Path]) -> None:
    """Import archives of the cache's image folder."""
    for archive in archives:
        place = f"/opt/bed/images/{archive.name}"
        if node.system.runtime == "containerd":
            on(node.name, "ctr", "--namespace", "k8s.io", "images", "import", place)
            continue
        for name in names(images.folder() / archive.name):
            on(node.name, "skopeo", "copy", "--quiet", f"docker-archive:{place}:{name}", f"containers-storage:{name}")


def wait_until(true, what: str, seconds: float, pause: float = 0.2) -> None:  # type: ignore[no-untyped-def]
    """Wait until ``true()``. Raises BedError, which names ``what``, after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise BedError(f"{what} is not there after {seconds:.0f} s: look with `bed logs`")
        time.sleep(pause)


def check_ways_out(plan: Plan, nodes: Sequence[Node]) -> None:
    """Check that nothing leaves through the host: nodes only route to the gateway, which has no route out."""
    # These addresses are reserved for documentation: nobody has them.
    families = [("-4", "198.51.100.1", plan.gateway), ("-6", "2001:db8::1", plan.twin(plan.gateway))]
    for family, outside, gateway in families[: 2 if plan.dual_stack else 1]:

        def check(node: Node, family: str = family, outside: str = outside, gateway: str = gateway) -> None:
            ways = on(node.name, "ip", "-o", family, "route", "show", "default").strip()
            way = on(node.name, "ip", "-o", "route", "get", outside)
            alone = re.fullmatch(rf"default via {gateway} dev eth0( metric \d+ pref medium)?", ways)
            if not alone or f"via {gateway} " not in way:
                raise BedError(f"{node.name} has the default route {ways!r}: it must be {plan.gateway_name} alone")

        in_parallel(check, nodes)
        way = on(plan.gateway_name, "ip", "-o", "route", "get", outside, check=False)
        if "via" in way or "dev eth" in way:
            raise BedError(f"{plan.gateway_name} would reach {outside} by {way.strip()!r}: it must have no way out")


def raise_limits(progress: Progress, folder: Path = Path("/proc/sys/fs/inotify")) -> None:
    """Raise the inotify limits that are too low, until the next boot, and say so.

    All containers of a machine share root's inotify instances. A kubelet that gets none polls, and joining takes
    minutes.
    """
    for name, needed in INOTIFY_LIMITS.items():
        limit = folder / name
        if (now := int(limit.read_text())) < needed:
            try:
                limit.write_text(str(needed))
            except OSError as error:
                raise BedError(
                    f"fs.inotify.{name} is {now}, too few for kubelets, and cannot be raised: {error}"
                ) from error
            progress.say(f"Raised fs.inotify.{name} from {now} to {needed} until the next boot: kubelets share it.")


def containers(name: str) -> list[tuple[str, str]]:
    """Return name and state of each container of the bed ``name``."""
    listing = podman("ps", "--all", "--filter", f"label={LABEL}={name}", "--format", "json")
    return sorted((item["Names"][0], item["State"]) for item in json.loads(listing or "[]"))


def remove(name: str) -> int:
    """Remove all containers and the network of the bed ``name``, with their volumes. Return how many there were.

    Forwarder and fabric use the gateway's network, so they are removed first.
    """
    found = [container for container, _ in containers(name)]
    guests = [container for container in found if container.endswith(("-api-forwarder", "-fabric"))]
    for group in (guests, [container for container in found if container not in guests]):
        in_parallel(remove_container, group)
    networks = podman("network", "ls", "--filter", f"label={LABEL}={name}", "--format", "{{ .Name }}").split()
    _disconnect_host(name)
    for network in networks:
        podman("network", "rm", "--force", network)
    return len(found) + len(networks)


def remove_container(container: str) -> None:
    """Remove a container, in up to three tries: podman 4.3 sometimes fails if the container ends while it is killed."""
    for last in (False, False, True):
        try:
            podman("rm", "--force", "--volumes", "--time", "0", "--ignore", container)
            return
        except CommandFailed:
            if last:
                raise
            time.sleep(0.5)


def limits() -> list[str]:
    """Return podman's options for limits that do not exceed the host's own hard limits: podman would request more, and
    that fails on a host without CAP_SYS_RESOURCE. podman also lowers its own nproc to 32768 at most."""
    limits = []
    for name, number, most in (("nofile", resource.RLIMIT_NOFILE, 65536), ("nproc", resource.RLIMIT_NPROC, 32768)):
        hard = resource.getrlimit(number)[1]
        given = most if hard == resource.RLIM_INFINITY else min(hard, most)
        limits += ["--ulimit", f"{name}={given}:{given}"]
    return limits
