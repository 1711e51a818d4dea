# SPDX-License-Identifier: Apache-2.0
"""Real-world units and environment files: what the plan of a whole host writes, as systemd's own library reads the files."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import lint
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

from tests import systemd

FLAGS_ENV, DEFAULT = "/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet"
OWN, SYSCONFIG = "/etc/systemd/system/kubelet.service", "/etc/sysconfig/kubelet"
PLAIN = 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n'
EXTERNAL = "--cloud-provider=external"


def text_of(facts: dict[str, Any], path: str) -> str:
    return base64.b64decode(facts["files"][path]["content"]).decode()


def argv(facts: dict[str, Any], unit: dict[str, Any], name: str, edited: dict[str, str] | None = None) -> list[str]:
    texts = {path: text_of(facts, path) for path in unit["unit_files"] + unit["environment_files"] if facts["files"][path]["exists"]} | (edited or {})
    return systemd.command_line(name, [texts[path] for path in unit["unit_files"]], {p: texts[p] for p in unit["environment_files"] if p in texts})


def written(step: dict[str, Any]) -> dict[str, str]:
    return {item["path"]: base64.b64decode(item["content"]).decode() for item in step["files"]}


def managed(words: list[str]) -> list[str]:
    """Return the cloud flags among arguments, each as one word."""
    joined = " ".join(words).replace("--cloud-provider ", "--cloud-provider=").replace("--cloud-config ", "--cloud-config=").split(" --")
    return ["--" + word.strip() for word in joined[1:] if word.startswith(("cloud-", "feature-gates"))]


@pytest.fixture
def worker(host_facts: Any) -> Any:
    """Return a function that builds a kubeadm worker, or a worker with its own unit. Its kubelet runs with what systemd reads in its files."""

    def build(files: dict[str, str], unit: str = "", version: str = "v1.33.4") -> dict[str, Any]:
        facts: dict[str, Any] = host_facts("w-1", {**({OWN: unit} if unit else {}), **files})
        kubelet = facts["kubelet"]
        if unit:
            kubelet.update(unit_files=[OWN], environment_files=[path for path in files if not path.endswith(".service")])
        kubelet.update(version=version, flags=managed(argv(facts, kubelet, "kubelet.service")))
        return facts

    return build


def check(facts: dict[str, Any], cluster_facts: Any) -> dict[str, str]:
    """Plan the host's migration, and return the new texts. Check that systemd reads the old arguments and the external provider in them, and
    that the step's flags agree with its edits."""
    plan = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), version=facts["kubelet"]["version"], kubeadm=""), [])
    problems = [problem for problem in plan["problems"] if "control plane" not in problem and "kube_control_plane" not in problem]
    assert not problems, problems
    step = plan["hosts"]["w-1"]["kubelet"]
    texts = written(step)
    before, after = (argv(facts, facts["kubelet"], "kubelet.service", edited) for edited in ({}, texts))
    clouds = ("--cloud-provider", "--cloud-config")
    others = [[word for index, word in enumerate(words) if not word.startswith(clouds) and (words[index - 1] not in clouds)] for words in (before, after)]
    assert others[0] == others[1]
    assert [word for word in after if word.startswith("--cloud-")] == [EXTERNAL] and step["flags"] == managed(after)
    for edit in plan["edits"]:
        flag = f"{edit['flag']}={edit['then']}"
        assert edit["now"] != edit["then"] and (edit["then"] is None or flag in step["flags"]), (edit, step["flags"])
    return texts


@pytest.mark.parametrize("value", [
    '"--cloud-provider=vsphere --cloud-config=/etc/c"',
    '"--cloud-provider= --cloud-config=/etc/c"',
    "--cloud-provider vsphere --cloud-config /etc/c",
    '"\n  --cloud-provider=vsphere\n  --cloud-config=/etc/c\n"',
    '"\n  --v=2\n  --cloud-provider=vsphere\n  --cloud-config=/etc/c\n  --max-pods=200\n"',
    ' "--cloud-provider=vsphere --cloud-config=/etc/c" ',
    '"--cloud-provider=vsphere" \' --cloud-config=/etc/c\'',
    "--cloud-provider=vsphere \\\n--cloud-config=/etc/c \\\n--v=2",
    '"--root-dir=/data/kubelet --cloud-provider=vsphere" \\\n',
])
def test_the_classic_worker_of_an_in_tree_cloud(worker: Any, cluster_facts: Any, value: str) -> None:
    """One such host once stopped the plan of all hosts with 'overlapping edits', and lost its other flags if a value had several lines."""
    texts = check(worker({FLAGS_ENV: PLAIN, DEFAULT: f"# ours\nKUBELET_EXTRA_ARGS={value}\nOTHER=1\n"}), cluster_facts)
    assert texts[FLAGS_ENV] == PLAIN.replace('0.1"', f'0.1 {EXTERNAL}"')
    assert texts[DEFAULT].startswith("# ours\nKUBELET_EXTRA_ARGS=") and texts[DEFAULT].endswith("OTHER=1\n")


def test_the_classic_worker_with_a_drop_in(worker: Any, cluster_facts: Any) -> None:
    facts = worker({FLAGS_ENV: PLAIN})
    drop_in = "/etc/systemd/system/kubelet.service.d/20-cloud.conf"
    text = '[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--cloud-provider=vsphere --cloud-config=/etc/c"\n'
    facts["files"][drop_in] = {**facts["files"][FLAGS_ENV], "content": base64.b64encode(text.encode()).decode()}
    facts["kubelet"]["unit_files"].append(drop_in)
    facts["kubelet"]["flags"] = ["--cloud-provider=vsphere", "--cloud-config=/etc/c"]
    assert check(facts, cluster_facts)[drop_in] == '[Service]\nEnvironment="KUBELET_EXTRA_ARGS="\n'


@pytest.mark.parametrize(("before", "after"), [
    ('KUBELET_EXTRA_ARGS="\n  --kube-reserved=cpu=50m\n"\n', f'KUBELET_EXTRA_ARGS="\n  --kube-reserved=cpu=50m\n{EXTERNAL}"\n'),
    ('KUBELET_EXTRA_ARGS="\n  --node-ip=10.0.0.1\n  --max-pods=200"\n', f'KUBELET_EXTRA_ARGS="\n  --node-ip=10.0.0.1\n  --max-pods=200 {EXTERNAL}"\n'),
    ("KUBELET_EXTRA_ARGS='\n--v=2\n'\n", f"KUBELET_EXTRA_ARGS='\n--v=2\n{EXTERNAL}'\n"),
    ('KUBELET_EXTRA_ARGS="\n  --v=2\n  --cloud-provider=aws\n"\n', f'KUBELET_EXTRA_ARGS="\n  --v=2\n  {EXTERNAL}\n"\n'),
    ('KUBELET_EXTRA_ARGS = "--v=2"\n', f'KUBELET_EXTRA_ARGS = "--v=2 {EXTERNAL}"\n'),
    ('KUBELET_EXTRA_ARGS=\t"--v=2"\n', f'KUBELET_EXTRA_ARGS=\t"--v=2 {EXTERNAL}"\n'),
    ('KUBELET_EXTRA_ARGS="--root-dir=/data/kubelet" \\\n', f'KUBELET_EXTRA_ARGS="--root-dir=/data/kubelet {EXTERNAL}" \\\n'),
    ('KUBELET_EXTRA_ARGS="--v=2" --x\n', f'KUBELET_EXTRA_ARGS="--v=2" --x {EXTERNAL}\n'),
    ("KUBELET_EXTRA_ARGS=--node-labels=a=b,\\\nc=d\n", f"KUBELET_EXTRA_ARGS=--node-labels=a=b,\\\nc=d {EXTERNAL}\n"),
    ('KUBELET_EXTRA_ARGS="--feature-gates=X=true,\\\nY=true"\n', f'KUBELET_EXTRA_ARGS="--feature-gates=X=true,\\\nY=true {EXTERNAL}"\n'),
    ('KUBELET_EXTRA_ARGS="--v=2"\r\n', f'KUBELET_EXTRA_ARGS="--v=2 {EXTERNAL}"\r\n'),
])
def test_a_kubelet_with_a_unit_and_a_file_of_its_own(worker: Any, cluster_facts: Any, before: str, after: str) -> None:
    unit = f"[Service]\nEnvironmentFile=-{SYSCONFIG}\nExecStart=/usr/bin/kubelet --config=/c $KUBELET_EXTRA_ARGS\n"
    assert check(worker({SYSCONFIG: before}, unit), cluster_facts) == {SYSCONFIG: after}


@pytest.mark.parametrize(("unset", "place"), [
    ("ARGS", OWN),
    ("OTHER ARGS\nUnsetEnvironment=MORE", OWN),
    ("'ARGS=--max-pods=200 --cloud-provider=aws'", OWN),
    ("ARGS\nUnsetEnvironment=", SYSCONFIG),
    ("ARGS=other", SYSCONFIG),
])
def test_a_variable_that_the_unit_removes_has_no_flags(worker: Any, cluster_facts: Any, unset: str, place: str) -> None:
    """A flag in such a variable does not reach the kubelet, and neither would a new one."""
    unit = f"[Service]\nEnvironmentFile={SYSCONFIG}\nUnsetEnvironment={unset}\nExecStart=/usr/bin/kubelet --v=2 $ARGS\n"
    texts = check(worker({SYSCONFIG: 'ARGS="--max-pods=200 --cloud-provider=aws"\n'}, unit), cluster_facts)
    assert list(texts) == [place]


@pytest.mark.parametrize(("command", "environment", "after"), [
    ("--cloud-provider=${CLOUD} --v=2", "CLOUD=aws\n", "CLOUD=external\n"),
    ("--cloud-provider=${CLOUD} --v=2", 'CLOUD="aws" # no comment\n', None),
    ("--cloud-provider=${A}${B}", "A=a\nB=ws\n", None),
    ("--cloud-provider=${CLOUD}", "CLOUD=external\n", ""),
])
def test_a_variable_inside_a_word(worker: Any, cluster_facts: Any, command: str, environment: str, after: str | None) -> None:
    facts = worker({SYSCONFIG: environment}, f"[Service]\nEnvironmentFile={SYSCONFIG}\nExecStart=/usr/bin/kubelet {command}\n")
    if after == "":
        plan = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), version="v1.33.4", kubeadm=""), [])
        assert plan["hosts"]["w-1"]["kubelet"] is None and not any("wrapper" in problem for problem in plan["problems"])
        return
    texts = check(facts, cluster_facts)
    assert after is None or texts == {SYSCONFIG: after}


@pytest.mark.parametrize(("before", "after"), [
    ('"--feature-gates=X=true, Y=true, CloudDualStackNodeIPs=true"', '"--feature-gates=X=true,Y=true"'),
    ("'--feature-gates=CloudDualStackNodeIPs=true, X=true'", "'--feature-gates=X=true'"),
    ('--feature-gates="X=true, CloudDualStackNodeIPs=true"', '--feature-gates="X=true"'),
    (r"--feature-gates=X=true,\x20CloudDualStackNodeIPs=true", "--feature-gates=X=true"),
])
def test_a_quoted_word_keeps_its_quotes(worker: Any, cluster_facts: Any, before: str, after: str) -> None:
    unit = f"[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=external {before} --v=2\n"
    facts = worker({}, unit)
    value = argv(facts, facts["kubelet"], "kubelet.service")[2]
    facts["kubelet"]["flags"] = [EXTERNAL, value]
    plan = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), version="v1.33.4", kubeadm=""), [])
    step = plan["hosts"]["w-1"]["kubelet"]
    assert [word.replace(" ", "") for word in argv(facts, facts["kubelet"], "kubelet.service", written(step))[1:]] == [
        EXTERNAL, after.replace('"', "").replace("'", "").replace(" ", ""), "--v=2"]
    assert step["flags"] == argv(facts, facts["kubelet"], "kubelet.service", written(step))[1:3]


@pytest.mark.parametrize(("line", "flags", "name"), [
    ("export KUBELET_EXTRA_ARGS=\"--v=2 --cloud-provider=vsphere --cloud-config=/c\"", ["--cloud-provider=vsphere", "--cloud-config=/c"],
     "'export KUBELET_EXTRA_ARGS'"),
    ("KUBELET_EXTRA_ARGS+=\" --cloud-provider aws\"", ["--cloud-provider=aws"], "'KUBELET_EXTRA_ARGS+'"),
    ("kubelet-args='--cloud-provider=aws'", ["--cloud-provider=aws"], "'kubelet-args'"),
    ("KUBELET_EXTRA_ARGS: x=--cloud-provider=aws", ["--cloud-provider=aws"], "'KUBELET_EXTRA_ARGS: x'"),
    ("export KUBELET_EXTRA_ARGS=--v=2", [], ""), ("# export A=--cloud-provider=aws", [], ""), ("export --cloud-provider", [], ""),
])
def test_a_flag_in_a_line_that_systemd_ignores_is_told(worker: Any, cluster_facts: Any, line: str, flags: list[str], name: str) -> None:
    """People write such a file for a shell. The kubelet never got the flag, but would get it if somebody corrected the line."""
    facts = worker({FLAGS_ENV: PLAIN, DEFAULT: f"# ours\nOTHER=1\n{line}\n"})
    plan = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), version="v1.33.4", kubeadm=""), [])
    assert [text for text in plan["warnings"] if "ignores" in text] == [
        f"w-1: {DEFAULT} line 3 sets {flag}, but systemd ignores that line, because a variable cannot have the name {name}" for flag in flags]
    assert check(facts, cluster_facts) == {FLAGS_ENV: PLAIN.replace('0.1"', f'0.1 {EXTERNAL}"')}


@pytest.mark.parametrize("command", [
    "/bin/bash -o pipefail -c 'exec kubelet --cloud-provider=aws'", "/usr/bin/nice -n 5 /bin/sh -c 'exec kubelet --cloud-provider=aws'",
    "/usr/bin/env -u HTTP_PROXY sh -c 'exec kubelet --cloud-provider=aws'", "/usr/bin/env -S 'kubelet --cloud-provider=aws'",
    "/bin/bash --norc +e -c 'exec kubelet --cloud-provider=aws'",
])
def test_a_command_as_text_is_refused_whatever_starts_it(worker: Any, cluster_facts: Any, command: str) -> None:
    """A flag that is appended after the text would be an argument of the shell."""
    facts = worker({SYSCONFIG: ""}, f"[Service]\nExecStart={command}\n")
    plan = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), version="v1.33.4", kubeadm=""), [])
    assert plan["hosts"]["w-1"]["kubelet"] is None
    assert [text for text in plan["problems"] if f"w-1: the kubelet's flags cannot be changed: {OWN} starts it with a shell" in text]


@pytest.mark.parametrize(("component", "version", "value", "after"), [
    ("kube-controller-manager", "v1.30.4", '"\n  --v=2\n"', f'"\n  --v=2\n{EXTERNAL}"'),
    ("kube-controller-manager", "v1.30.4", ' "--v=2"', f' "--v=2 {EXTERNAL}"'),
    ("kube-apiserver", "v1.33.4", '"--cloud-provider vsphere --cloud-config /c"', '""'),
    ("kube-apiserver", "v1.33.4", '"--cloud-provider=vsphere --cloud-config=/c --v=2"', '" --v=2"'),
])
def test_a_component_of_the_control_plane_with_an_environment_file(host_facts: Any, cluster_facts: Any, component: str, version: str, value: str,
                                                                   after: str) -> None:
    path, environment = f"/etc/systemd/system/{component}.service", f"/etc/{component}.env"
    unit = f"[Service]\nEnvironmentFile={environment}\nExecStart=/usr/bin/{component} --a $ARGS\n"
    facts = host_facts("cp-1", {path: unit, environment: f"ARGS={value}\n"})
    facts["files"][environment] = {**facts["files"][path], "content": base64.b64encode(f"ARGS={value}\n".encode()).decode()}
    facts["units"] = {component: {"unit": f"{component}.service", "unit_files": [path], "environment_files": [environment]}}
    flags = managed(argv(facts, facts["units"][component], f"{component}.service"))
    facts["components"] = {component: {"pid": 1, "flags": flags, "version": version}}
    plan = make_plan({"cp-1": facts}, cluster_facts(("cp-1", "initialized"), version=version, kubeadm=""), ["cp-1"])
    (step,) = [step for step in plan["hosts"]["cp-1"]["control_plane"] if step["component"] == component]
    assert written(step) == {environment: f"ARGS={after}\n"}, plan["problems"]
    assert step["flags"] == managed(argv(facts, facts["units"][component], f"{component}.service", written(step)))


def test_the_linter_reads_every_line_of_a_value(worker: Any, cluster_facts: Any) -> None:
    facts = worker({FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="\n  --v=2\n  --cloud-config=/etc/c\n"\n'}, version="v1.34.0")
    result = lint.lint({"w-1": facts}, cluster_facts(("w-1", "initialized"), version="v1.34.0", kubeadm=""))
    assert [(finding["file"], finding["line"], finding["flag"]) for finding in result["findings"]] == [(FLAGS_ENV, 3, "--cloud-config")]
