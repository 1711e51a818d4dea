# SPDX-License-Identifier: Apache-2.0
"""What `make new-kubernetes` calls a difference, and what `make lint` reports about decisions on differences."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bed.errors import BedError
from bed.minors import minor_of
from bed.progress import Progress
from tests.peers.tables import gotables
from tools.docs import kubernetes_versions
from tools.new_kubernetes import __main__ as command
from tools.new_kubernetes import decisions, sources
from tools.new_kubernetes.differences import differences, stage, things
from tools.new_kubernetes.sources import NoSuchMinor, Sources, choose, fetch, newest

MINOR = (1, 37)


def of(component: str, folder: str, minor: tuple[int, int] = MINOR, **facts: Any) -> Sources:
    return Sources(minor, {}, {component: {folder: facts}}, {})


KCM, FRAMEWORK = "kube-controller-manager kubernetes", "cloud-provider cloud-provider"
GATE = [{"Version": "1.36", "Default": False, "PreRelease": "ALPHA"}]


@pytest.mark.parametrize(
    ("component", "folder", "old", "new", "expected"),
    [
        (KCM, "app", {"flags": {"x": ""}}, {}, "flag kube-controller-manager --x: gone"),
        (
            KCM,
            "app",
            {"flags": {"x": ""}},
            {"flags": {"x": "deprecated"}},
            "flag kube-controller-manager --x: changed (- -> deprecated)",
        ),
        (KCM, "app", {"flags": {"of Service": ""}}, {}, "flag kube-controller-manager all flags of Service: gone"),
        (KCM, "app", {"controllers": {"route": "alias"}}, {}, "controller kube-controller-manager route: gone"),
        (
            KCM,
            "x/names",
            {},
            {"consts": {"A": "new-controller"}},
            "controller kube-controller-manager name new-controller: new",
        ),
        (KCM, "f", {"vars": {"defaultXFeatureGates": {"G": GATE}}}, {}, "gate kube-controller-manager G: gone"),
        (
            FRAMEWORK,
            "a",
            {"metrics": {"m": []}},
            {"metrics": {"m": ["l"]}},
            "metric cloud-provider m: changed (- -> l)",
        ),
        (FRAMEWORK, "a", {"events": {"R": "Normal"}}, {}, "event cloud-provider R: gone"),
        (
            FRAMEWORK,
            "api",
            {},
            {"consts": {"T": "x.kubernetes.io/new"}},
            "label cloud-provider x.kubernetes.io/new: new",
        ),
        (FRAMEWORK, "node", {}, {"tests": ["TestX"]}, "case cloud-provider node TestX: new"),
        ("kubeadm kubernetes", "app/phases/x", {}, {"args": {"cloud": ""}}, "kubeadm kubeadm argument cloud: new"),
        (
            "kubeadm kubernetes",
            "app/constants",
            {"consts": {"V": "1"}},
            {"consts": {"V": "2"}},
            "kubeadm kubeadm constant V: changed (1 -> 2)",
        ),
        (
            "kube-apiserver kubernetes",
            "o",
            {"vars": {"AllOrderedPlugins": ["P"]}},
            {"vars": {"AllOrderedPlugins": []}},
            "plugin kube-apiserver P: gone",
        ),
        (
            "api api",
            "policy/v1beta1",
            {"removed": {"K": "1.40"}},
            {"removed": {"K": "1.38"}},
            "api api policy/v1beta1 K: changed (removed in 1.40 -> removed in 1.38)",
        ),
        ("api api", "policy/v1", {}, {"structs": {"K": {}}}, "api api version policy/v1: new"),
    ],
)
def test_differences_of_each_kind(component, folder, old, new, expected):
    before, after = (things(of(component, folder, **facts)) for facts in (old, new))
    assert expected in differences(before, after)
    assert differences(after, after) == []


def test_a_new_version_is_one_difference_and_not_one_for_each_field():
    old = things(of("kubeadm kubernetes", "apis/kubeadm/v1beta4", structs={"A": {"x": "int"}}))
    added = things(of("kubeadm kubernetes", "apis/kubeadm/v1", structs={"A": {"x": "int", "y": "int"}}))
    assert [id for id in differences(old, old | added) if id.startswith("config")] == [
        "config kubeadm kubernetes apis/kubeadm/v1: new"
    ]
    grown = things(of("kubeadm kubernetes", "apis/kubeadm/v1beta4", structs={"A": {"x": "int", "y": "int"}}))
    assert differences(old, grown) == ["config kubeadm kubernetes apis/kubeadm/v1beta4 A y: new (int)"]


def test_the_rows_of_a_table_are_differences_by_name():
    def with_rows(rows):
        return Sources(MINOR, {}, {}, {"cloud-provider": {"x_test.go": {"TestX": {"tests": rows, "node": {"a": {}}}}}})

    old, new = [{"name": "a", "in": 1}, {"name": "b"}], [{"name": "a", "in": 2}, {"name": "c"}]
    assert differences(things(with_rows(old)), things(with_rows(new))) == [
        "case cloud-provider x_test.go TestX tests 'a': changed",
        "case cloud-provider x_test.go TestX tests 'b': gone",
        "case cloud-provider x_test.go TestX tests 'c': new",
    ]


SPECS = [
    {"Version": "1.36", "Default": False, "PreRelease": "ALPHA"},
    {"Version": "1.37", "Default": True, "PreRelease": "BETA"},
    {"Version": "1.38", "Default": True, "PreRelease": "", "LockToDefault": True},
]


@pytest.mark.parametrize(
    ("minor", "expected"),
    [((1, 35), "not yet"), ((1, 36), "alpha, off"), ((1, 37), "beta, on"), ((1, 39), "ga, on, locked")],
)
def test_a_gate_is_what_its_last_spec_says(minor, expected):
    assert stage(SPECS, minor) == expected


def test_the_newest_version_of_a_minor_is_a_release_before_all_others():
    known = ["v0.37.2", "v0.38.0-alpha.2", "v0.38.0-rc.0", "v0.38.0-alpha.10", "nonsense"]
    assert newest((1, 38), known) == "v0.38.0-rc.0"
    assert newest((1, 38), [*known, "v0.38.0"]) == "v0.38.0"
    assert newest((1, 37), [*known, "v0.37.10"]) == "v0.37.10"
    assert newest((1, 39), known) == ""
    assert command.is_released((1, 38), [*known, "v1.38.0"])
    assert not command.is_released((1, 38), known)


def test_a_minor_that_does_not_exist():
    with pytest.raises(NoSuchMinor, match=r"has no Kubernetes 1\.99: its newest module is of v0\.37\.2"):
        choose((1, 99), {"k8s.io/api": ["v0.36.1", "v0.37.2"]})


def test_a_version_that_needs_a_newer_go_is_left_out_and_named():
    def get(pairs, progress):
        if too_new := [f"{name}@{version}" for name, version in pairs if version == "v0.38.0-alpha.2"]:
            raise BedError(f"Go cannot get {too_new[0]}: {too_new[0]} requires go >= 1.27.0 (running go 1.26.8)")
        return {pair: Path("/x") for pair in pairs}

    known = {"k8s.io/api": ["v0.38.0-alpha.0", "v0.38.0-alpha.2"], "k8s.io/kubelet": ["v0.38.0-alpha.0"]}
    chosen, folders, skipped = fetch((1, 38), known, Progress(), get)
    assert chosen == dict.fromkeys(known, "v0.38.0-alpha.0") and set(folders) == set(known)
    assert skipped == ["k8s.io/api  v0.38.0-alpha.2 needs Go 1.27.0, and the installed Go is older"]
    with pytest.raises(BedError, match=r"this Go is too old for Kubernetes 1\.38"):
        fetch((1, 38), {"k8s.io/api": ["v0.38.0-alpha.2"]}, Progress(), get)


def test_an_unreachable_proxy(monkeypatch, capsys):
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    assert command.main(["1.37"]) == 1
    message = capsys.readouterr().err
    assert "Go cannot list versions of Kubernetes (go env GOPROXY names the proxy)" in message
    assert "Traceback" not in message


SOURCE = """package options

const name = "late"

func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.A, "alpha", o.A, "DEPRECATED: no more")
	fs.Int32Var(&o.B, name, o.B, "useful")
	fs.MarkDeprecated("late", "gone soon")
	o.Service.AddFlags(fs)
	o.recorder.Eventf(node, v1.EventTypeWarning, "Failed", "x")
}

var total = metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: "sub", Name: "calls_total"}, []string{"result"})

func descriptor() *ControllerDescriptor {
	return &ControllerDescriptor{name: "service-lb-controller", aliases: []string{"service"}}
}

type Configuration struct {
	Period int `json:"period,omitempty"`
}
"""


def test_sources_are_read(tmp_path):
    (tmp_path / "app/options").mkdir(parents=True)
    (tmp_path / "app/options/options.go").write_text(SOURCE)
    request = {"facts": {"x": {"dir": str(tmp_path), "packages": ["app/..."], "modules": {}}}}
    assert gotables(request, Progress())["x"]["app/options"] == {
        "consts": {"name": "late"},
        "structs": {"Configuration": {"period": "int"}},
        "flags": {"alpha": "deprecated", "late": "deprecated", "of Service": ""},
        "metrics": {"sub_calls_total": ["result"]},
        "events": {"Failed": ""},
        "controllers": {"service-lb-controller": "run", "service": "alias"},
    }


def test_a_module_whose_layout_changed(tmp_path):
    request = {"facts": {"x": {"dir": str(tmp_path), "packages": ["app/..."], "modules": {}}}}
    with pytest.raises(BedError, match=r'has no folder "app": has the module\'s layout changed\?'):
        gotables(request, Progress())


IDS = ["flag kubelet --a: gone", "flag kubelet --b: new"]
DONE = {"decision": "ignored", "why": "no cloud", "ids": [IDS[0]]}


def test_new_differences_are_open_and_old_ones_go():
    merged = decisions.merged([DONE, {"decision": "open", "why": "", "ids": ["x"]}], IDS)
    assert merged == [DONE, {"decision": "open", "why": "", "ids": [IDS[1]]}]
    assert decisions.merged(merged, []) == []


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([DONE, {"decision": "open", "why": "", "ids": [IDS[1]]}], "entry 2: 1 differences have no decision"),
        ([{**DONE, "decision": "later"}], "decision must be one of"),
        ([{**DONE, "why": " "}], "why must be a sentence"),
        ([{"decision": "ignored", "ids": IDS}], "the keys decision, why and ids"),
        ([DONE, DONE], "is decided twice"),
    ],
)
def test_what_lint_refuses(entries, problem):
    assert any(problem in text for text in decisions.problems("1.37.yml", entries))
    assert decisions.problems("1.37.yml", [DONE]) == []


def test_a_supported_minor_without_a_file(tmp_path):
    assert decisions.check(((1, 29), (1, 36)), tmp_path) == []
    [problem] = decisions.check(((1, 29), (1, 37)), tmp_path)
    assert problem == "1.37.yml is missing: run `make new-kubernetes VERSION=1.37`"


def test_the_file_of_a_minor_that_is_no_longer_supported_may_go(tmp_path):
    """MAINTAINERS.md says that such a file may be deleted."""
    (tmp_path / "1.38.yml").write_text(decisions.text([DONE], "Title."))
    assert decisions.check(((1, 38), (1, 38)), tmp_path) == []


def test_all_differences_of_supported_minors_are_decided():
    assert decisions.check(decisions.supported()) == []


@pytest.mark.parametrize("path", sorted(decisions.FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_what_is_decided_as_a_fact_or_as_parity_is_there(path):
    """A decision `fact` is a row of the table of facts; a decision `parity` names behaviours that exist."""
    minor = minor_of(path.stem)
    gone = [fact for fact in kubernetes_versions.load().FACTS if minor in (fact.gone_in, fact.fatal_in)]
    rows = {fact.flag for fact in gone} | {(fact.value or "").partition("=")[0] for fact in gone}
    behaviours = "\n".join(file.read_text() for file in (command.ROOT / "tools/parity/behaviours").glob("*.yml"))
    for entry in decisions.load(path):
        for id in entry["ids"] if entry["decision"] == "fact" else ():
            name = id.rpartition(": ")[0].rpartition(" ")[2].removeprefix("--").replace("_", "-")
            known = {"ServiceController": "concurrent-service-syncs", "v1beta3": "kubeadm.k8s.io/v1beta3"}
            name = "kubeadm.k8s.io/v1beta3" if name.endswith("/v1beta3") else known.get(name, name)
            assert name in rows, id
        if entry["decision"] == "parity":
            named = re.findall(r"\b[NALSRCTW]\d+\b", entry["why"])
            assert named and all(re.search(rf"^{id}: ", behaviours, re.MULTILINE) for id in named)


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "1.37.yml"
    path.write_text(decisions.text([DONE], "Title."))
    assert decisions.load(path) == [DONE]


def test_the_report_has_each_difference_with_its_decision():
    text = command.report(IDS, ["k8s.io/api  v0.36.1 -> v0.37.2"], [DONE])
    assert "kubelet --a: gone  [ignored]" in text
    assert "kubelet --b: new  [open]" in text
    assert text.endswith("2 differences: 1 ignored, 1 open")


def test_a_minor_that_does_not_exist_is_named_and_not_the_one_before_it(monkeypatch, capsys):
    monkeypatch.setattr(command, "listed", lambda modules, progress: {"k8s.io/api": ["v0.37.2"]})
    assert command.main(["1.99"]) == 1
    assert "the module proxy has no Kubernetes 1.99: " in capsys.readouterr().err


def looked(monkeypatch, ids, versions):
    """Run the weekly check; return its status. The last supported minor has the differences `ids`, and the module proxy
    has these versions of Kubernetes."""

    def compare(old, new, progress):
        if new > decisions.supported()[1]:
            raise NoSuchMinor("there is no Kubernetes yet")
        return ids, []

    monkeypatch.setattr(command, "compare", compare)
    monkeypatch.setattr(command, "listed", lambda modules, progress: {"k8s.io/kubernetes": versions})
    return command.main([])


def test_the_weekly_look_fails_when_somebody_must_look(monkeypatch, capsys):
    known = [id for entry in decisions.load(decisions.FOLDER / "1.37.yml") for id in entry["ids"]]
    monkeypatch.setattr(decisions, "supported", lambda: ((1, 29), (1, 37)))
    assert looked(monkeypatch, known, []) == 0
    assert looked(monkeypatch, [*known, IDS[1]], []) == 1
    assert "1 differences have no decision" in capsys.readouterr().out


def test_the_weekly_look_fails_when_the_next_minor_is_released(monkeypatch, capsys):
    monkeypatch.setattr(decisions, "supported", lambda: ((1, 29), (1, 37)))
    monkeypatch.setattr(command, "compare", lambda old, new, progress: ([], []))
    for versions, code in ([["v1.37.2"], 0], [["v1.38.0-rc.1"], 0], [["v1.38.0"], 1]):
        monkeypatch.setattr(command, "listed", lambda modules, progress, v=versions: {"k8s.io/kubernetes": v})
        assert command.main([]) == code
    assert "Kubernetes 1.38 is released" in capsys.readouterr().out


def test_every_module_of_the_components_is_one_of_kubernetes():
    modules = sources.modules_of(sources.components())
    assert "k8s.io/cloud-provider" in modules
    assert "k8s.io/cases" not in modules
