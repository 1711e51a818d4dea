# SPDX-License-Identifier: Apache-2.0
"""The kubelet's command line from unit and environment files, and edits of these files."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubelet
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit as _unit
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import flags
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Change

FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"
DEFAULT = "/etc/default/kubelet"


@pytest.fixture
def kubeadm(fixture_text: Any) -> Any:
    """Return a function that edits a kubeadm kubelet's environment files, and returns the edit, the new texts and the new arguments."""
    units = [("/usr/lib/systemd/system/kubelet.service", fixture_text("kubelet/kubelet.service")),
             ("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", fixture_text("kubelet/10-kubeadm.conf"))]

    def run(version: tuple[int, int] = (1, 36), **files: str) -> tuple[kubelet.Edit, dict[str, str], list[str]]:
        paths = {"flags": FLAGS_ENV, "default": DEFAULT}
        texts = {**dict(units), **{paths[name]: text for name, text in files.items()}}
        sources = _unit.Sources(tuple(path for path, unused in units), (FLAGS_ENV, DEFAULT), texts)
        edit = kubelet.plan(sources, version)
        edited = sources.edited(edit.spans)
        assert kubelet.plan(edited, version).spans == {}, "a second run must have nothing to do"
        argv = [argument.value for argument in edited.command_line().arguments]
        assert edit.after == _unit.managed_flags(argv)
        return edit, {path: edited.texts[path] for path in edit.spans}, argv

    return run


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///x --node-ip=10.0.0.1"\n',
         'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///x --node-ip=10.0.0.1 --cloud-provider=external"\n'),
        ('KUBELET_KUBEADM_ARGS=""\n', 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'),
        ("KUBELET_KUBEADM_ARGS=\n", 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'),
        ("KUBELET_KUBEADM_ARGS=--a=b --c=d\n", "KUBELET_KUBEADM_ARGS=--a=b --c=d --cloud-provider=external\n"),
        ('KUBELET_KUBEADM_ARGS="--cloud-provider=aws --cloud-config=/c --v=2"', 'KUBELET_KUBEADM_ARGS="--cloud-provider=external --v=2"'),
        ('KUBELET_KUBEADM_ARGS="--v=2 --cloud-provider openstack"\r\n', 'KUBELET_KUBEADM_ARGS="--v=2 --cloud-provider external"\r\n'),
        ('KUBELET_KUBEADM_ARGS="--node-labels=\\"a=b c\\" --cloud-provider=aws"\n',
         'KUBELET_KUBEADM_ARGS="--node-labels=\\"a=b c\\" --cloud-provider=external"\n'),
        ("# none yet\n", '# none yet\nKUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'),
    ],
)
def test_kubeadm_flags_env_gets_the_flag_and_keeps_the_rest(kubeadm: Any, before: str, after: str) -> None:
    unused, texts, argv = kubeadm(flags=before)
    assert texts[FLAGS_ENV] == after
    assert [flag for flag in _unit.managed_flags(argv) if flag[0].startswith("cloud")] == [("cloud-provider", "external")]


def test_a_flag_in_the_wrong_file_that_would_win_is_removed_and_both_files_are_named(kubeadm: Any) -> None:
    edit, texts, argv = kubeadm(flags='KUBELET_KUBEADM_ARGS="--v=2"\n', default="# mine\nKUBELET_EXTRA_ARGS=--cloud-provider= --feature=x\n")
    assert texts == {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--v=2 --cloud-provider=external"\n', DEFAULT: "# mine\nKUBELET_EXTRA_ARGS=--feature=x\n"}
    assert [flag for flag in _unit.managed_flags(argv) if flag[0].startswith("cloud")] == [("cloud-provider", "external")]
    both, unused, unused2 = kubeadm(flags='KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n', default="KUBELET_EXTRA_ARGS=--cloud-provider=\n")
    assert [change.path for change in both.changes] == [DEFAULT]
    assert FLAGS_ENV in both.changes[0].why and DEFAULT in both.changes[0].why and "last one counts" in both.changes[0].why


@pytest.mark.parametrize(("before", "after"), [
    ("--cloud-provider=vsphere --cloud-config=/etc/c", ""),
    ("--cloud-provider= --cloud-config=/etc/c", ""),
    ("--cloud-provider vsphere --cloud-config /etc/c", ""),
    ("--cloud-config=/etc/c --cloud-provider=vsphere --cloud-config=/etc/d", ""),
    ("--cloud-provider=vsphere --cloud-config=/etc/c --v=2", " --v=2"),
    ("--v=2 --cloud-provider=vsphere --cloud-config=/etc/c", "--v=2"),
])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_flags_side_by_side_go_from_the_file_that_is_not_kubeadms(kubeadm: Any, before: str, after: str, quote: str) -> None:
    """The typical worker of an in-tree cloud. Only one space separates the two flags; each removal once included that space."""
    unused, texts, argv = kubeadm(flags='KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n', default=f"KUBELET_EXTRA_ARGS={quote}{before}{quote}\n")
    assert texts == {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1 --cloud-provider=external"\n',
                     DEFAULT: f"KUBELET_EXTRA_ARGS={quote}{after}{quote}\n"}
    assert [word for word in argv if "cloud" in word] == ["--cloud-provider=external"]


def test_settled_files_are_left_alone_wherever_the_flag_is(kubeadm: Any) -> None:
    edit, texts, unused = kubeadm(flags='KUBELET_KUBEADM_ARGS="--v=2"\n', default='KUBELET_EXTRA_ARGS="--cloud-provider=external"\n')
    assert (edit.changes, texts) == ([], {})


def test_a_missing_flags_file_is_created(kubeadm: Any) -> None:
    edit, texts, unused = kubeadm(default="KUBELET_EXTRA_ARGS=\n")
    assert texts == {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'}


def test_two_different_in_tree_providers_are_refused_with_both_places(kubeadm: Any) -> None:
    with pytest.raises(_unit.UnitRefused) as refused:
        kubeadm(flags='KUBELET_KUBEADM_ARGS="--cloud-provider=aws"\n', default="KUBELET_EXTRA_ARGS=--cloud-provider=openstack\n")
    assert FLAGS_ENV in str(refused.value) and DEFAULT in str(refused.value)


def plan_unit(*units: tuple[str, str], **environment: str) -> tuple[kubelet.Edit, dict[str, str | None]]:
    sources = _unit.Sources(tuple(path for path, unused in units), tuple(environment), {**dict(units), **environment})
    edit = kubelet.plan(sources, (1, 36))
    return edit, {path: sources.edited(edit.spans).texts[path] for path in edit.spans}


def test_plain_units_are_edited_in_their_exec_line() -> None:
    unit = ("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet \\\n  --cloud-provider=aws \\\n  --v=2\n")
    assert plan_unit(unit)[1] == {unit[0]: unit[1].replace("aws", "external")}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (" \\\n  --cloud-config=/c \\\n  --v=2\n", " \\\n  --v=2\n"),
        (" \\\n  --v=2 \\\n  --cloud-config /c\n", " \\\n  --v=2\n"),
        (" \\\r\n\t--cloud-config=/c --v=2\r\n", " \\\r\n --v=2\r\n"),
        (" --cloud-config=/c\n", "\n"),
    ],
)
def test_a_flag_goes_with_the_line_it_has_to_itself(before: str, after: str) -> None:
    unit = ("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=external" + before)
    assert plan_unit(unit)[1] == {unit[0]: unit[1].replace(before, after)}


def test_environment_lines_of_a_drop_in_are_edited() -> None:
    unit = ("/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n")
    drop_in = ("/etc/systemd/system/kubelet.service.d/20-x.conf", '[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--cloud-config=/c --v=2"\n')
    edit, after = plan_unit(unit, drop_in)
    assert after == {drop_in[0]: '[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--v=2 --cloud-provider=external"\n'}
    assert [change.flag for change in edit.changes] == ["cloud-config", "cloud-provider"]


def test_a_variable_in_braces_is_one_argument_to_which_nothing_is_added() -> None:
    text = "[Service]\nEnvironmentFile=/etc/default/kubelet\nExecStart=/usr/bin/kubelet ${KUBELET_EXTRA_ARGS}\n"
    edit, after = plan_unit((OURS, text), **{DEFAULT: "KUBELET_EXTRA_ARGS=--node-ip=1.2.3.4\n"})
    assert after == {OURS: text.replace("ARGS}", "ARGS} --cloud-provider=external")}
    assert edit.after == [("cloud-provider", "external")]
    both = text.replace("kubelet $", "kubelet $KUBELET_ARGS $")
    after = plan_unit((OURS, both), **{DEFAULT: "KUBELET_EXTRA_ARGS=--node-ip=1.2.3.4\nKUBELET_ARGS=--v=2\n"})[1]
    assert after == {DEFAULT: "KUBELET_EXTRA_ARGS=--node-ip=1.2.3.4\nKUBELET_ARGS=--v=2 --cloud-provider=external\n"}
    with pytest.raises(_unit.UnitRefused, match=r"has \$\{KUBELET_EXTRA_ARGS\}.*Write \$KUBELET_EXTRA_ARGS there"):
        plan_unit((PACKAGE, text), **{DEFAULT: "KUBELET_EXTRA_ARGS=--node-ip=1.2.3.4\n"})


def test_a_flag_in_a_variable_in_braces_is_replaced_but_not_removed() -> None:
    text = "[Service]\nEnvironmentFile=/etc/default/kubelet\nExecStart=/usr/bin/kubelet ${CLOUD} ${CONFIG}\n"
    assert plan_unit((OURS, text), **{DEFAULT: "CLOUD=--cloud-provider=aws\nCONFIG=--v=2\n"})[1] == {
        DEFAULT: "CLOUD=--cloud-provider=external\nCONFIG=--v=2\n"}
    with pytest.raises(_unit.UnitRefused, match=r"has \$\{CONFIG\}.*--cloud-config is removed from /etc/default/kubelet"):
        plan_unit((OURS, text), **{DEFAULT: "CLOUD=--cloud-provider=external\nCONFIG=--cloud-config=/c\n"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Service]\nExecStart=/usr/bin/kubelet --v=2\n", "EnvironmentFile=-/etc/default/kubelet"),
        ("[Service]\nExecStart=/usr/bin/kubelet $ODD\nEnvironment=ODD=--v=2\n", "no place for"),
        ("[Service]\n", "no ExecStart"),
    ],
)
def test_unknown_layouts_are_refused_with_a_way_out(text: str, words: str) -> None:
    with pytest.raises(_unit.UnitRefused, match=words):
        plan_unit(("/lib/systemd/system/kubelet.service", text))


def test_later_files_override_variables_of_earlier_ones() -> None:
    unit = _unit.parse_unit([("/u", "[Service]\nEnvironment=A=1 B=2\nEnvironmentFile=-/e\nExecStart=/k ${A} $B $C\n[Install]\nExecStart=/no\n")])
    line = _unit.command_line(unit, [("/e", "B='x y'\n#C=5\n")])
    assert [argument.value for argument in line.arguments] == ["/k", "1", "x", "y"]
    assert line.unset == ("C",)


def test_dead_feature_gates_go_and_others_stay(kubeadm: Any) -> None:
    before = 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'
    gates = "KUBELET_EXTRA_ARGS=--feature-gates=DisableCloudProviders=false,GracefulNodeShutdown=true --v=2\n"
    edit, texts, argv = kubeadm(flags=before, default=gates)
    assert texts == {DEFAULT: "KUBELET_EXTRA_ARGS=--feature-gates=GracefulNodeShutdown=true --v=2\n"}
    assert edit.after == [("cloud-provider", "external"), ("feature-gates", "GracefulNodeShutdown=true")]
    assert "kubelet 1.36 does not start with it" in edit.changes[0].why
    edit, texts, argv = kubeadm(flags=before, default=gates.replace(",GracefulNodeShutdown=true", ""), version=(1, 32))
    assert texts == {DEFAULT: "KUBELET_EXTRA_ARGS=--v=2\n"} and "1.32 does not start" in edit.changes[0].why
    assert kubeadm(flags=before, default=gates, version=(1, 29))[1] == {}, "its default may be overruled until 1.30"


def test_kubeadm_on_red_hat_reads_sysconfig_and_a_drop_in_of_the_operators_wins() -> None:
    package = ("/usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    kubeadm = ("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
               "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/sysconfig/kubelet\nExecStart=\n"
               "ExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS $OURS\n")
    ours = ("/etc/systemd/system/kubelet.service.d/90-ours.conf", "[Service]\nEnvironment='OURS=--v=3 --cloud-provider=openstack'\n")
    edit, after = plan_unit(package, kubeadm, ours, **{FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n',
                                                       "/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=\n"})
    assert after == {ours[0]: "[Service]\nEnvironment='OURS=--v=3'\n"}
    assert edit.after == [("cloud-provider", "external")]
    (change,) = edit.changes
    assert FLAGS_ENV in change.why and ours[0] in change.why and "kubernetes/cloud-provider-openstack" in change.why
    edit, after = plan_unit(package, kubeadm, **{FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--v=2"\n',
                                                 "/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=--cloud-provider=\n"})
    assert after == {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS="--v=2 --cloud-provider=external"\n', "/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=\n"}


def test_a_drop_in_that_replaces_the_command_is_the_one_that_is_edited() -> None:
    package = ("/usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=aws\n")
    ours = ("/etc/systemd/system/kubelet.service.d/50-ours.conf", "[Service]\nExecStart=\nExecStart=/opt/kubelet --v=2\n")
    assert plan_unit(package, ours)[1] == {ours[0]: ours[1].replace("--v=2", "--v=2 --cloud-provider=external")}


PACKAGE, OURS = "/lib/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d/20-x.conf"
OWN = "/etc/systemd/system/kubelet.service"


@pytest.mark.parametrize("flags", [
    pytest.param("--cloud-provider=external --feature-gates=DisableCloudProviders=false,A=true", id="a-gate-among-others"),
    pytest.param("--cloud-provider=external --feature-gates=DisableCloudProviders=false", id="a-gate"),
    pytest.param("--cloud-provider=aws", id="a-value"),
    pytest.param("--cloud-provider=external --cloud-config=/c", id="a-flag-that-goes"),
])
def test_a_packages_file_is_never_edited(flags: str) -> None:
    with pytest.raises(_unit.UnitRefused, match=f"{PACKAGE} sets --(feature-gates|cloud-provider|cloud-config)=.*belongs to a package"):
        plan_unit((PACKAGE, f"[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS {flags}\n"),
                  (OURS, '[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--v=2"\n'))


def test_a_value_in_a_packages_file_is_not_edited() -> None:
    unit = "[Service]\nEnvironment=P=aws\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS $P\n"
    with pytest.raises(_unit.UnitRefused, match="sets --cloud-provider=aws, but that file belongs to a package"):
        plan_unit((PACKAGE, unit), (OURS, '[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--cloud-provider"\n'))


def test_a_packages_variable_is_not_edited() -> None:
    unit = "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--cloud-provider=aws\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS $KUBELET_ARGS\n"
    with pytest.raises(_unit.UnitRefused, match=f"{PACKAGE} sets --cloud-provider=aws"):
        plan_unit((PACKAGE, unit), (OURS, '[Service]\nEnvironment="KUBELET_ARGS=--v=2"\n'))


@pytest.mark.parametrize(("flags", "default", "twice"), [
    pytest.param("--cloud-provider=aws --cloud-provider=", "", False, id="two-values-in-one-file"),
    pytest.param("--cloud-provider=aws", "--cloud-provider=aws", False, id="one-value-in-two-files"),
    pytest.param("--cloud-provider=aws", "--cloud-provider=external", True, id="two-values-in-two-files"),
])
def test_a_conflict_is_two_values_in_two_files(kubeadm: Any, flags: str, default: str, twice: bool) -> None:
    edit, unused, unused2 = kubeadm(flags=f'KUBELET_KUBEADM_ARGS="{flags}"\n', default=f"KUBELET_EXTRA_ARGS={default}\n")
    assert any("set twice, and the last one counts" in change.why for change in edit.changes) is twice


def test_a_flag_that_is_new_says_what_it_is_for(kubeadm: Any) -> None:
    (change,) = kubeadm(flags='KUBELET_KUBEADM_ARGS="--v=2"\n')[0].changes
    assert change.why == "the kubelet must leave addresses, providerID and the taint to the external controller"


@pytest.mark.parametrize(("files", "made"), [
    pytest.param(["/etc/default/*", "/etc/sysconfig/kubelet"], "/etc/sysconfig/kubelet", id="no-pattern"),
    pytest.param(["/etc/other", "/etc/default/kubelet"], "/etc/default/kubelet", id="the-one-for-it"),
    pytest.param(["/etc/*/default/kubelet", "/etc/sysconfig/kubelet"], "/etc/sysconfig/kubelet", id="no-pattern-with-a-good-end"),
])
def test_an_unset_variable_goes_to_the_file_that_is_meant_for_it(files: list[str], made: str) -> None:
    unit = (PACKAGE, "[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n")
    assert plan_unit(unit, **dict.fromkeys(files, ""))[1] == {made: 'KUBELET_EXTRA_ARGS="--cloud-provider=external"\n'}


def test_a_variable_that_is_set_keeps_its_place_whatever_file_an_unset_one_would_have() -> None:
    unit = (PACKAGE, "[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n")
    files = {FLAGS_ENV: "", DEFAULT: "KUBELET_EXTRA_ARGS=--v=2\n"}
    assert plan_unit(unit, **files)[1] == {DEFAULT: "KUBELET_EXTRA_ARGS=--v=2 --cloud-provider=external\n"}


@pytest.mark.parametrize(("command", "name", "before", "changed", "after"), [
    pytest.param("kubelet $KUBELET_OPTS", "/etc/kubelet.conf", 'KUBELET_OPTS="--v=2"\n',
                 "/etc/kubelet.conf", 'KUBELET_OPTS="--v=2 --cloud-provider=external"\n', id="its-last-variable"),
    pytest.param("kubelet $KUBELET_OPTS", "/etc/kubelet.conf", 'KUBELET_OPTS="--cloud-provider=aws --v=2"\n',
                 "/etc/kubelet.conf", 'KUBELET_OPTS="--cloud-provider=external --v=2"\n', id="where-the-old-value-is"),
    pytest.param("kubelet $KUBELET_OPTS --v=2", "/etc/kubelet.conf", "KUBELET_OPTS=--node-ip=::1\n",
                 OWN, "[Service]\nExecStart=kubelet $KUBELET_OPTS --v=2 --cloud-provider=external\n", id="behind-the-flags-of-the-unit"),
    pytest.param("kubelet $KUBELET_OPTS", "/usr/share/kubelet.conf", "KUBELET_OPTS=--v=2\n",
                 OWN, "[Service]\nExecStart=kubelet $KUBELET_OPTS --cloud-provider=external\n", id="not-in-a-file-of-a-package"),
])
def test_a_unit_of_ones_own_may_name_its_variables_as_it_likes(command: str, name: str, before: str, changed: str, after: str) -> None:
    assert plan_unit((OWN, f"[Service]\nExecStart={command}\n"), **{name: before})[1] == {changed: after}


def test_a_unit_without_a_place_is_named() -> None:
    with pytest.raises(_unit.UnitRefused, match=f"^its unit \\({PACKAGE}\\) uses none of"):
        plan_unit((PACKAGE, "[Service]\nExecStart=/usr/bin/kubelet --v=2\n"))


@pytest.mark.parametrize(("values", "then"), [(["a", "b"], ["x", "y"]), (["a"], ["x"]), (["a", "b"], [None, "y"])])
def test_a_plan_that_would_change_its_own_result_is_refused(monkeypatch: pytest.MonkeyPatch, values: list[str], then: list[str | None]) -> None:
    """With such a plan, every run would change the same file and restart every kubelet."""
    def restless(_component: str, present: list[flags.Flag], _version: tuple[int, int]) -> list[Change]:
        return [Change(flag.name, flag, new if new is None or flag.value != new else new + new, "why", "")
                for flag, new in zip([flag for flag in present if flag.name == "feature-gates"], then, strict=False)]

    monkeypatch.setattr(kubelet, "gate_changes", restless)
    text = "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=external " + " ".join(f"--feature-gates={value}" for value in values) + "\n"
    unit = "/etc/systemd/system/kubelet.service"
    first = next(new for new in then if new)
    expected = f"from {first} to {then[0] and then[0] * 2}"
    with pytest.raises(_unit.UnitRefused, match=f"^{unit}: --feature-gates would still change {expected} after the edit"):
        kubelet.plan(_unit.Sources((unit,), (), {unit: text}), (1, 33))
