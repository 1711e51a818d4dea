# SPDX-License-Identifier: Apache-2.0
"""C15-C17 and W28: which controllers migrate between this manager and another one."""

import json

import pytest

from ccm.options.command_line import OptionsError
from ccm.options.command_line import parse as options
from ccm.options.controller_names import ON_BY_DEFAULT, canonical
from ccm.options.leader_migration import Migration, Split, parse, split

NODE, LIFECYCLE, SERVICE, ROUTE = ON_BY_DEFAULT
V1 = "controllermanager.config.k8s.io/v1"


def config(version="v1", **fields):
    base = {"apiVersion": f"controllermanager.config.k8s.io/{version}", "kind": "LeaderMigrationConfiguration"}
    return json.dumps(base | {"leaderName": "moving", "controllerLeaders": []} | fields)


def leader(name, component):
    return {"name": name, "component": component}


def good(text):
    migration, problems = parse(text, "m.yaml")
    assert problems == []
    return migration


def bad(text):
    return parse(text, "m.yaml")[1]


@pytest.mark.parametrize(
    ("component", "expected"),
    [
        pytest.param("kube-controller-manager", Split((NODE, LIFECYCLE, SERVICE), (), (ROUTE,)), id="C15-of-another"),
        pytest.param("cloud-controller-manager", Split((NODE, LIFECYCLE, SERVICE), (ROUTE,)), id="C15-mine"),
        pytest.param("*", Split((NODE, LIFECYCLE, SERVICE), (ROUTE,)), id="C15-anybodys"),
        pytest.param(None, Split((NODE, LIFECYCLE, SERVICE, ROUTE)), id="C15-unlisted"),
    ],
)
def test_filter(component, expected):
    leaders = {} if component is None else {ROUTE: component}
    assert split(ON_BY_DEFAULT, Migration("moving", leaders)) == expected


def test_without_migration_all_is_ours():
    assert split([NODE, ROUTE], None) == Split((NODE, ROUTE))


def test_W28_by_default_route_service_and_lifecycle_are_migrated():
    """Upstream's default has outdated names for two controllers, so only the lifecycle controller migrates there."""
    assert split(ON_BY_DEFAULT, Migration()) == Split((NODE,), (LIFECYCLE, SERVICE, ROUTE))
    assert Migration().leader_name == "cloud-provider-extraction-migration"
    found = options(["--cloud-provider=sim", "--enable-leader-migration"])
    assert found.migration() == Migration()
    assert options(["--cloud-provider=sim"]).migration() is None


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("route-controller", ROUTE),
        ("route", ROUTE),
        (ROUTE, ROUTE),
        ("service-controller", SERVICE),
        ("service", SERVICE),
        (SERVICE, SERVICE),
        ("cloud-node-lifecycle-controller", LIFECYCLE),
        ("cloud-node-lifecycle", LIFECYCLE),
        ("cloud-node", NODE),
        ("garbage-collector-controller", "garbage-collector-controller"),
    ],
)
def test_W28_former_short_and_present_names(name, present):
    assert canonical(name) == present
    assert good(config(controllerLeaders=[leader(name, "*")])).leaders == {present: "*"}


@pytest.mark.parametrize(
    ("version", "more"),
    [
        pytest.param("v1", {}, id="C17-v1"),
        pytest.param("v1beta1", {}, id="C17-v1beta1"),
        pytest.param("v1alpha1", {"resourceLock": "leases"}, id="C17-v1alpha1"),
    ],
)
def test_versions(version, more):
    text = config(version, controllerLeaders=[leader("route", "a"), leader("service", "b")], **more)
    assert good(text) == Migration("moving", {ROUTE: "a", SERVICE: "b"})


def test_C17_yaml_as_in_the_documentation():
    text = f"""
kind: LeaderMigrationConfiguration
apiVersion: {V1}
leaderName: cloud-provider-extraction-migration
controllerLeaders:
  - name: route
    component: kube-controller-manager
  - name: cloud-node-lifecycle
    component: kube-controller-manager
"""
    expected = {ROUTE: "kube-controller-manager", LIFECYCLE: "kube-controller-manager"}
    assert good(text) == Migration(leaders=expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(config(leaderName=""), "leaderName: is missing", id="C16-leader-name"),
        pytest.param(config(leaderName=5), "leaderName: expected text, not 5", id="C16-leader-name-type"),
        pytest.param(
            config(controllerLeaders=[{"component": "x"}]), "controllerLeaders[0].name: is missing", id="C16-name"
        ),
        pytest.param(
            config(controllerLeaders=[leader("a", "x"), {"name": "b"}]),
            "controllerLeaders[1].component: is missing",
            id="C16-component",
        ),
        # Upstream accepts `endpoints` here and fails later, because its client no longer has that lock.
        pytest.param(
            config("v1beta1", resourceLock="endpoints"), "resourceLock: expected leases, not 'endpoints'", id="C16-lock"
        ),
        pytest.param(config(resourceLock="leases"), "resourceLock: unknown key; known keys:", id="C17-v1-has-no-lock"),
        pytest.param(config("v2"), f"apiVersion: expected one of {V1}, ", id="C17-version"),
        pytest.param(config(kind="Other"), "kind: expected LeaderMigrationConfiguration, not 'Other'", id="C17-kind"),
        pytest.param(config(leadername="x"), "leadername: unknown key; did you mean leaderName?", id="C17-strict"),
        pytest.param(
            config(controllerLeaders=[leader("a", "b") | {"colour": 1}]),
            "controllerLeaders[0].colour: unknown key; known keys: name, component",
            id="C17-strict-inside",
        ),
        pytest.param(
            config(controllerLeaders=[leader("route", "a"), leader("route-controller", "b")]),
            "controllerLeaders[1].name: 'route-controller' already has the component 'a'",
            id="one-controller-of-two-components",
        ),
        pytest.param("- a", "expected keys and values, not ['a']", id="no-mapping"),
        pytest.param("a: [", "this is not YAML", id="no-yaml"),
        pytest.param(config(controllerLeaders={}), "controllerLeaders: expected a list, not {}", id="no-list"),
    ],
)
def test_what_is_refused(text, problem):
    found = bad(text)
    assert any(problem in line and line.startswith("m.yaml") for line in found), found


def test_the_line_is_told_and_a_key_given_twice():
    text = f"kind: LeaderMigrationConfiguration\napiVersion: {V1}\nleaderName: a\nleaderName: b\nx: 1\n"
    assert bad(text) == ["m.yaml, line 3: leaderName: duplicate key, set again in line 4"]


def test_C16_all_problems_at_once_and_with_those_of_the_flags(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text(config(leaderName="", controllerLeaders=[{}]))
    with pytest.raises(OptionsError) as caught:
        options(
            [
                "--cloud-provider=sim",
                "--enable-leader-migration",
                f"--leader-migration-config={file}",
                "--kube-api-qps=x",
            ]
        )
    found = caught.value.problems
    assert len(found) == 4
    for part in ("--kube-api-qps", "leaderName: is missing", "[0].name: is missing", "[0].component: is missing"):
        assert any(part in problem for problem in found)


def test_the_file_is_read_only_when_migration_is_on(tmp_path):
    arguments = ["--cloud-provider=sim", f"--leader-migration-config={tmp_path / 'none'}"]
    assert options(arguments).migration() is None
    with pytest.raises(OptionsError, match=r"--leader-migration-config .*none cannot be read: No such file"):
        options([*arguments, "--enable-leader-migration"])
    (tmp_path / "none").write_text(config(controllerLeaders=[leader("route", "*")]))
    assert options([*arguments, "--enable-leader-migration"]).migration() == Migration("moving", {ROUTE: "*"})
