# SPDX-License-Identifier: Apache-2.0
import importlib.metadata

import pytest

from ccm.cloud import Cloud, ConfigError, ProviderConfig, registry
from ccm.providers.sim import SimCloud


class Good(Cloud):
    name = "good"


class Choosy(Cloud):
    name = "choosy"

    def __init__(self, config):
        raise ConfigError(["endpoint is missing", "token is missing"])


class Buggy(Cloud):
    name = "buggy"

    def __init__(self, config):
        raise KeyError(config.text)


not_a_cloud = object()


class Point(importlib.metadata.EntryPoint):
    def load(self):
        if self.value == "breaks":
            raise ImportError("No module named 'vendorsdk'")
        return globals()[self.value]


@pytest.fixture
def installed(monkeypatch):
    def install(**points):
        found = [
            Point(name, value, registry.GROUP)
            for name, values in points.items()
            for value in ([values] if isinstance(values, str) else values)
        ]

        def entry_points(*, group):
            assert group == "ccm.providers"
            return found

        monkeypatch.setattr(registry, "entry_points", entry_points)

    return install


def problems(function, *arguments):
    with pytest.raises(ConfigError) as caught:
        function(*arguments)
    return caught.value.problems


def test_sim_is_installed():
    assert "sim" in registry.names()
    assert registry.load("sim") is SimCloud


def test_names_are_sorted_and_single(installed):
    installed(good="Good", buggy="Buggy", choosy=["Choosy", "Good"])
    assert registry.names() == ["buggy", "choosy", "good"]


def test_unknown_lists_what_is_installed(installed):
    installed(good="Good", buggy="Buggy")
    assert problems(registry.load, "goood") == [
        "unknown cloud provider 'goood': installed providers are buggy, good. "
        "Install a package with an entry point 'goood' in the group 'ccm.providers', or correct --cloud-provider"
    ]


def test_unknown_when_nothing_is_installed(installed):
    installed()
    assert "installed providers are none." in problems(registry.load, "good")[0]


def test_one_that_does_not_import_is_listed_and_says_why(installed):
    installed(good="Good", vendor="breaks")
    assert "installed providers are good, vendor." in problems(registry.load, "x")[0]
    assert problems(registry.load, "vendor") == [
        "cannot import cloud provider 'vendor' (breaks): ImportError: No module named 'vendorsdk'"
    ]
    assert registry.load("good") is Good  # a broken provider does not affect the others


def test_registered_twice(installed):
    installed(good=["Good", "Choosy"])
    assert problems(registry.load, "good") == [
        "cloud provider 'good' is registered more than once (Choosy, Good): uninstall all but one"
    ]
    installed(good=["Good", "Good"])  # the same package twice on the path
    assert registry.load("good") is Good


def test_not_a_cloud(installed):
    installed(odd="not_a_cloud", point="Point")
    for name, value in (("odd", "not_a_cloud"), ("point", "Point")):
        assert problems(registry.load, name) == [
            f"cloud provider {name!r} ({value}) is not a subclass of ccm.cloud.Cloud"
        ]


def test_create(installed):
    installed(good="Good", choosy="Choosy", buggy="Buggy")
    config = ProviderConfig("token: s3cret", "/etc/ccm/cloud.conf")
    assert registry.create("good", config).config is config
    assert problems(registry.create, "choosy", config) == ["endpoint is missing", "token is missing"]
    # The message of an unexpected exception may quote a secret, so only its type is reported.
    assert problems(registry.create, "buggy", config) == [
        "cloud provider 'buggy' failed on the configuration /etc/ccm/cloud.conf with KeyError"
    ]
