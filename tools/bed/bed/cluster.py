# SPDX-License-Identifier: Apache-2.0
"""Starts, extends, shows and removes beds: the order of the steps, and what a bed keeps on disk."""

from __future__ import annotations

import json
import secrets
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from bed import binaries, documents, hard_way, images, kubespray, machines, paths, prerequisites, pythons, versions
from bed.errors import BedError
from bed.machines import on
from bed.plan import CLOUD_PORT, CLOUD_TOKEN, Node, Plan
from bed.progress import Progress
from bed.run import CommandFailed, in_parallel, run

_CLOUD_SECONDS = 20.0
_READY_SECONDS = 120.0
_LOG_COMMANDS = {
    "kubelet.log": "journalctl --no-pager --unit kubelet",
    "containerd.log": "journalctl --no-pager --unit containerd --unit crio",
    "kube-proxy.log": "journalctl --no-pager --unit kube-proxy",
    "control-plane.log": "journalctl --no-pager --unit etcd --unit 'kube-*'",
    "network.txt": "ip address; ip route; ip -6 route; cat /etc/cni/net.d/*",
    "pods.log": "tail -n +1 /var/log/pods/*/*/*.log",
}


class Bed:
    """A bed on disk: build/bed/NAME with inventory.yml, kubeconfig, state.json and what the containers mount."""

    def __init__(self, plan: Plan, secrets_: dict[str, str]) -> None:
        self.plan = plan
        self.secrets = secrets_
        self.folder = paths.of_bed(plan.name)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def version(self) -> versions.Version:
        return versions.find(self.plan.kubernetes)

    def save(self) -> None:
        """Write state.json and the files for Ansible and the cloud. Only their owner can read those with secrets."""
        state = {"plan": self.plan.to_dict(), "secrets": self.secrets, "gateway": self.plan.gateway}
        state["api_endpoint"] = self.plan.api_endpoint
        state["cloud_endpoint"] = f"http://{self.plan.gateway}:{CLOUD_PORT}"
        _write_private(self.folder / "state.json", json.dumps(state, indent=2) + "\n")
        own = {node.name: str(pythons.program(node.system.python)) for node in self.plan.nodes if node.system.python}
        _write(self.folder / "inventory.yml", documents.inventory(self.plan, own))
        variables = documents.group_vars(self.plan, self.kubeconfig, images.RUNTIME_ARCHIVE)
        _write_private(self.folder / "group_vars" / "all.yml", variables)
        _write_private(self.folder / "cloud.yaml", documents.cloud(self.plan))

    @classmethod
    def load(cls, name: str) -> Bed:
        state = paths.of_bed(name) / "state.json"
        try:
            data = json.loads(state.read_text())
            return cls(Plan.from_dict(data["plan"]), data["secrets"])
        except FileNotFoundError as error:
            raise BedError(f"there is no bed named {name} ({state} is missing): `bed up --name {name}`") from error
        except (ValueError, KeyError, TypeError) as error:
            raise BedError(f"{state} is damaged ({error}): remove the bed with `bed down --name {name}`") from error


def up(plan: Plan, progress: Progress) -> Bed:
    """Start a bed. If that fails, everything stays for inspection, until `bed down`."""
    prerequisites.need_root("raising a bed")
    if machines.containers(plan.name):
        raise BedError(f"the bed {plan.name} is up, or half up: `bed down --name {plan.name}` first")
    prerequisites.ensure(progress)
    machines.raise_limits(progress)
    token = f"{secrets.token_hex(3)}.{secrets.token_hex(8)}"
    bed = Bed(plan, {"token": token, "certificate_key": secrets.token_hex(32)})
    found = binaries.ensure(bed.version, progress)
    images.ensure_all(bed.version, progress)
    images.ensure_systems({node.system_name for node in plan.nodes}, progress)
    shutil.rmtree(bed.folder, ignore_errors=True)
    bed.save()
    for node in plan.nodes:
        _write_node_config(bed, node)

    with progress.step(f"Network {plan.subnet} and gateway {plan.gateway_name}"):
        machines.make_network(plan)
        machines.start_gateway(plan, bed.folder / "cloud.yaml")
        machines.connect_host(plan)
        if len(plan.control_planes) > 1:
            machines.start_forwarder(plan)
    runtimes = " and ".join(sorted({node.system.runtime for node in plan.nodes}, reverse=True))
    with progress.step(f"{len(plan.nodes)} machines with {runtimes}, and their images") as step:
        in_parallel(lambda node: _start(bed, node, found, progress), plan.nodes)
        machines.check_ways_out(plan, plan.nodes)
        step.detail = ", ".join(node.name for node in plan.nodes)
    if plan.cloud:
        with progress.step(f"Cloud at http://{plan.gateway}:{CLOUD_PORT}"):
            _wait_for_cloud(plan)
    if plan.hard_way:
        _hard_way(bed, progress)
    else:
        _by_kubeadm(bed, progress)
    return bed


def _by_kubeadm(bed: Bed, progress: Progress) -> None:
    first, *others = bed.plan.control_planes
    with progress.step(f"kubeadm init on {first.name}"):
        if bed.plan.external_etcd:
            hard_way.start_etcd(bed.plan)
        _kubeadm(bed.plan, first, "init", upload=bool(others))
        _fetch_kubeconfig(bed)
        _bind(bed, "node-proxiers", "node-proxier", "--group=system:nodes")
    for node in others:
        with progress.step(f"kubeadm join on {node.name}, a control plane"):
            _kubeadm(bed.plan, node, "join")
    if bed.plan.workers:
        with progress.step(f"kubeadm join on {len(bed.plan.workers)} workers"):
            in_parallel(lambda node: _kubeadm(bed.plan, node, "join"), bed.plan.workers)
    with progress.step("Nodes Ready, system Pods running"):
        _wait_for_nodes(bed, bed.plan.nodes)
        _wait_for_system_pods(bed)


def _hard_way(bed: Bed, progress: Progress) -> None:
    names = ", ".join(node.name for node in bed.plan.control_planes)
    with progress.step(f"Units of the control plane on {names}"):
        _write_private(bed.kubeconfig, hard_way.start_control_planes(bed.plan))
        machines.wait_until(lambda: _ready_api(bed), "a ready API server", _READY_SECONDS, pause=0.5)
        _bind(bed, "node-proxiers", "node-proxier", "--group=system:nodes")
        _bind(bed, "kubelet-api", "kubelet-api-admin", "--user=kube-apiserver-kubelet-client")
    with progress.step("Units of the kubelets, Nodes Ready"):
        in_parallel(lambda node: hard_way.start_kubelet(bed.plan, node), bed.plan.nodes)
        _wait_for_nodes(bed, bed.plan.nodes)


def _bind(bed: Bed, name: str, role: str, subject: str) -> None:
    """Bind a system role to users that need it: kube-proxy, for example, runs with the kubelet's credentials."""
    kubectl(bed, "create", "clusterrolebinding", f"bed:{name}", f"--clusterrole=system:{role}", subject)


def _ready_api(bed: Bed) -> bool:
    try:
        return kubectl(bed, "get", "--raw=/readyz", "--request-timeout=5s") == "ok"
    except CommandFailed:
        return False


def node_join(name: str, node_name: str, external: bool, progress: Progress) -> None:
    """Add a worker, and its instance if the bed has the simulated cloud."""
    prerequisites.need_root("joining a node")
    bed = Bed.load(name)
    if bed.plan.hard_way:
        raise BedError(f"the bed {name} has no kubeadm that a node could join with: raise one without --hard-way")
    found = binaries.ensure(bed.version, progress)
    node = bed.plan.add(node_name, control_plane=False)
    _write_node_config(bed, node, external)
    bed.save()
    with progress.step(f"Machine {node.name} at {node.address}"):
        _start(bed, node, found, progress)
        machines.check_ways_out(bed.plan, [node])
        if bed.plan.cloud:
            _ask(bed.plan, "POST", "instances", documents.instance(bed.plan, node))
    with progress.step(f"kubeadm join on {node.name}"):
        _kubeadm(bed.plan, node, "join")
        # With an external cloud provider, the Node becomes Ready, too: the taint keeps Pods away, not the Pod network.
        _wait_for_nodes(bed, [node])


def install(name: str, version: versions.Version, names: list[str], progress: Progress) -> None:
    """Install other binaries on every machine. If kubeadm is one of them, also import its release's images on the
    control planes. Nothing is restarted. Machines that join later get the release of the kubelet that was installed
    last."""
    prerequisites.need_root("installing binaries")
    bed = Bed.load(name)
    if bed.plan.kubespray:
        raise BedError(f"the bed {name} runs its kubelet from another place: raise one without --kubespray")
    found = binaries.ensure(version, progress)
    archives = [images.ensure_control_plane(version, found, progress)] if "kubeadm" in names else []

    def on_machine(node: Node) -> None:
        machines.install(node, found, names)
        if node.control_plane:
            machines.load_images(node, archives)

    with progress.step(f"{', '.join(names)} {version.kubernetes} on {len(bed.plan.nodes)} machines"):
        in_parallel(on_machine, bed.plan.nodes)
    if "kubelet" in names:
        bed.plan.kubernetes = version.kubernetes
        bed.save()


def node_remove(name: str, node_name: str, progress: Progress) -> None:
    """Kill a worker's machine as abruptly as a cloud does. Its Node and its instance stay."""
    prerequisites.need_root("removing a node")
    bed = Bed.load(name)
    node = next((node for node in bed.plan.workers if node.name == node_name), None)
    if node is None:
        workers = ", ".join(node.name for node in bed.plan.workers)
        raise BedError(f"{node_name!r} is no worker of the bed {name!r}; its workers are {workers}")
    with progress.step(f"Removing machine {node.name}"):
        machines.remove_container(node.name)
        bed.plan.nodes.remove(node)
        bed.save()


def down(name: str, purge: bool, progress: Progress) -> None:
    """Remove a bed, even if only parts of it exist; ``purge`` also removes images and the cache."""
    prerequisites.need_root("removing a bed")
    with progress.step(f"Removing the bed {name}") as step:
        count = machines.remove(name)
        shutil.rmtree(paths.of_bed(name), ignore_errors=True)
        step.detail = f"{count} containers and networks" if count else "there was none"
    if purge:
        with progress.step("Removing images and cache"):
            images.forget()
            shutil.rmtree(paths.cache(), ignore_errors=True)


def status(name: str) -> str:
    """Return containers, Nodes and Pods of a bed, as text for people."""
    bed = Bed.load(name)
    lines = [f"{container:32} {state}" for container, state in machines.containers(name)]
    lines += ["", f"KUBECONFIG={bed.kubeconfig}"]
    lines += [f"cloud      http://{bed.plan.gateway}:{CLOUD_PORT}", ""] if bed.plan.cloud else [""]
    for what in ("nodes", "pods"):
        everywhere = ["--all-namespaces"] if what == "pods" else []
        try:
            lines.append(kubectl(bed, "get", what, *everywhere, "--output=wide", "--request-timeout=5s"))
        except CommandFailed as error:
            lines.append(f"{what}: {error.output.strip().splitlines()[-1]}")
    return "\n".join(lines)


def logs(name: str) -> Path:
    """Write the logs of the running machines and gateway below the bed's folder; return the folder of the logs."""
    bed = Bed.load(name)
    target = bed.folder / "logs"
    running = {container for container, _ in machines.containers(name)}

    def collect(node: Node) -> None:
        for file, command in _LOG_COMMANDS.items():
            _write(target / node.name / file, on(node.name, "sh", "-c", f"{command} 2>&1", check=False))

    in_parallel(collect, [node for node in bed.plan.nodes if node.name in running])
    if bed.plan.gateway_name in running:
        _write(target / f"{bed.plan.gateway_name}.log", _gateway_log(bed.plan))
    return target


def kubectl(bed: Bed, *arguments: str) -> str:
    """Run the bed's own kubectl on the host, and return its output."""
    folder = binaries.ensure(bed.version, Progress())
    return run(str(folder / "kubectl"), f"--kubeconfig={bed.kubeconfig}", *arguments)


def _write_node_config(bed: Bed, node: Node, external: bool = False) -> None:
    token, key = bed.secrets["token"], bed.secrets["certificate_key"]
    if node.control_plane and (bed.plan.hard_way or node == bed.plan.control_planes[0]):
        kubeadm = documents.kubeadm_init(bed.plan, token, key, node)
    else:
        kubeadm = documents.kubeadm_join(bed.plan, node, token, key, external)
    folder = bed.folder / "nodes" / node.name
    _write_private(folder / "kubeadm.yaml", kubeadm)
    _write(folder / "kube-proxy.yaml", documents.kube_proxy(bed.plan, node))


def _start(bed: Bed, node: Node, binaries: Path, progress: Progress) -> None:
    machines.start_node(bed.plan, node, binaries, bed.folder / "nodes" / node.name)
    if bed.plan.leftovers:
        if node.control_plane or bed.version.in_tree:
            machines.write_file(node.name, documents.LEFTOVER_CLOUD_CONF, documents.LEFTOVER_CLOUD_CONF_TEXT, "0600")
        if not node.control_plane and node == bed.plan.workers[0]:
            old = documents.LEFTOVER_IN_TREE_KUBELET_TEXT if bed.version.in_tree else documents.LEFTOVER_KUBELET_TEXT
            machines.write_file(node.name, documents.LEFTOVER_KUBELET_FILE, old)
    archives = [images.ensure_programs(progress)]
    if node.control_plane and not bed.plan.hard_way:
        archives.append(images.ensure_control_plane(bed.version, binaries, progress))
    machines.load_images(node, archives)


def _kubeadm(plan: Plan, node: Node, command: str, upload: bool = False) -> None:
    further = ["--upload-certs"] if upload else []
    config = f"{documents.NODE_CONFIG}/kubeadm.yaml"
    if plan.kubespray:
        kubespray.prepare(plan, node)
        config = kubespray.kubeadm_config(node)
    on(node.name, "kubeadm", command, f"--config={config}", "--ignore-preflight-errors=all", *further, timeout=300)


def _fetch_kubeconfig(bed: Bed) -> None:
    _write_private(bed.kubeconfig, on(bed.plan.control_planes[0].name, "cat", "/etc/kubernetes/admin.conf"))


def _wait_for_nodes(bed: Bed, nodes: list[Node]) -> None:
    """Wait until the nodes are registered, have a podCIDR, and are Ready, which needs their Pod network."""

    def ready() -> bool:
        items = _items(bed, "nodes")
        done = {item["metadata"]["name"] for item in items if _condition(item, "Ready") and item["spec"].get("podCIDR")}
        return {node.name for node in nodes} <= done

    machines.wait_until(ready, "a Ready condition of " + ", ".join(n.name for n in nodes), _READY_SECONDS, pause=0.5)


def _wait_for_system_pods(bed: Bed) -> None:
    components = 3 if bed.plan.external_etcd or bed.plan.kubespray else 4

    def ready() -> bool:
        pods = _items(bed, "pods", "--namespace=kube-system")
        return len(pods) >= components * len(bed.plan.control_planes) and all(_condition(pod, "Ready") for pod in pods)

    machines.wait_until(ready, "readiness of the control plane's Pods", _READY_SECONDS, pause=0.5)


def _items(bed: Bed, what: str, *arguments: str) -> list[dict[str, Any]]:
    """Return the items of a list; [] if kubectl fails, for example while the API server does not answer."""
    try:
        listing = json.loads(kubectl(bed, "get", what, *arguments, "--output=json", "--request-timeout=5s"))
    except CommandFailed:
        return []
    return list(listing["items"])


def _condition(item: dict[str, Any], kind: str) -> bool:
    conditions = item.get("status", {}).get("conditions", [])
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)


def _wait_for_cloud(plan: Plan) -> None:
    url = f"http://{plan.gateway}:{CLOUD_PORT}/healthz"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    try:
        machines.wait_until(answers, url, _CLOUD_SECONDS)
    except BedError as error:
        said = "\n".join(_gateway_log(plan).strip().splitlines()[-15:])
        raise BedError(f"the cloud does not answer at {url}; {plan.gateway_name} says:\n{said}") from error


def _gateway_log(plan: Plan) -> str:
    """Return the gateway's log. podman prints a container's standard error on its own standard error, so both are read.
    """
    return run("sh", "-c", 'podman logs "$1" 2>&1', "logs", plan.gateway_name, check=False)


def instances(plan: Plan) -> set[str]:
    """Return the names of the machines that the cloud has."""
    return {row["name"] for row in _ask(plan, "GET", "instances")["items"]}


def add_routes(bed: Bed) -> None:
    """Create the routes to the nodes' Pods, which no controller has created before the migration."""
    ids = {row["name"]: row["id"] for row in _ask(bed.plan, "GET", "instances")["items"]}
    for node in _items(bed, "nodes"):
        for destination in node["spec"].get("podCIDRs", []):
            route = {"destination": destination, "instance_id": ids[node["metadata"]["name"]], "owner": "kubernetes"}
            _ask(bed.plan, "POST", "routes", route)


def _ask(plan: Plan, method: str, kind: str, body: dict[str, Any] | None = None) -> Any:
    url = f"{plan.cloud_url}/{kind}"
    headers = {"Authorization": f"Bearer {CLOUD_TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")[:300]
        raise BedError(f"{method} {url} answers {error.code}: {said}") from error
    except OSError as error:
        raise BedError(f"{method} {url}: {error}: is {plan.gateway_name} running?") from error


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _write_private(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(content)
