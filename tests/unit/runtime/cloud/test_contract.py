# SPDX-License-Identifier: Apache-2.0
"""What the contract's data classes guarantee without a provider."""

import pytest

from ccm.cloud import Backends, Cloud, CloudError, Limits, ProviderConfig, RateLimited, Transient


def test_the_environment_is_the_processs_unless_another_is_given(monkeypatch):
    monkeypatch.setenv("ACME_TOKEN", "s3cret")
    config = ProviderConfig("text", "acme.conf")
    assert config.environment["ACME_TOKEN"] == "s3cret"
    monkeypatch.setenv("ACME_TOKEN", "another")
    assert config.environment["ACME_TOKEN"] == "s3cret", "a configuration never changes"
    assert ProviderConfig(environment={}).environment == {}


def test_the_environment_can_not_be_written_and_is_not_told(monkeypatch):
    monkeypatch.setenv("ACME_TOKEN", "s3cret")
    config = ProviderConfig()
    with pytest.raises(TypeError):
        config.environment["ACME_TOKEN"] = "mine"
    assert "s3cret" not in repr(config)


def test_configurations_are_the_same_by_what_the_file_says():
    """As in earlier releases, environment variables do not take part in comparing or hashing a configuration."""
    assert ProviderConfig("a", "f", {"X": "1"}) == ProviderConfig("a", "f", {})
    assert len({ProviderConfig("a", "f"), ProviderConfig("a", "f", {})}) == 1


def test_a_rate_limit_is_for_all_unless_it_says_otherwise():
    assert RateLimited("slow down").scope == "all"
    assert RateLimited("slow down", retry_after=3.0, scope="group").scope == "group"


def test_a_rate_limit_of_a_subclass_that_knows_no_scope_is_for_all():
    class Throttled(RateLimited):
        def __init__(self, message):
            CloudError.__init__(self, message, retry_after=1.0)

    assert (Throttled("slow down").scope, Throttled("slow down").retry_after) == ("all", 1.0)


def test_limits_have_no_groups_and_a_cloud_watches_no_files_unless_they_say_so():
    class Plain(Cloud):
        name = "plain"

    assert Limits().groups == {} and Plain(ProviderConfig()).watched_files == ()


def test_backends_never_change():
    backends = Backends()
    for name in ("_made", "digest", "note"):
        with pytest.raises(AttributeError):
            setattr(backends, name, {})
    assert backends.once("key", len) == 0


def test_an_error_concerns_all_unless_the_provider_says_otherwise():
    assert Transient("down").scope == "all"
    assert Transient("412", scope="object").scope == "object"
