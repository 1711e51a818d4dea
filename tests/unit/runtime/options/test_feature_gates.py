# SPDX-License-Identifier: Apache-2.0
"""`--feature-gates`: a gate of upstream's libraries is accepted with a warning, a misspelt one is refused."""

import logging

import pytest

from ccm.options import feature_gates
from ccm.options.upstream_gates import UPSTREAM


@pytest.mark.parametrize("text", ["ContextualLogging=false", "APIServerTracing=true,WatchList=true", "AllAlpha=true"])
def test_a_gate_of_upstream_without_effect_here_is_a_warning(text, caplog):
    gates = feature_gates.parse(text)
    with caplog.at_level(logging.WARNING):
        feature_gates.export(gates)
    assert caplog.messages == [f"feature gates without effect here: {', '.join(sorted(gates))}"]


def test_gates_with_an_effect_need_no_warning(caplog):
    with caplog.at_level(logging.WARNING):
        feature_gates.export(feature_gates.parse("CloudControllerManagerWebhook=true"))
    assert caplog.messages == []


def test_no_gate_is_both():
    assert not UPSTREAM & feature_gates.KNOWN.keys()


@pytest.mark.parametrize("text", ["ContextualLoging=true", "contextuallogging=true"])
def test_a_misspelt_gate_is_refused(text):
    with pytest.raises(ValueError, match="unknown gate"):
        feature_gates.parse(text)


@pytest.mark.parametrize(
    ("value", "enabled"),
    [
        *((text, True) for text in ("1", "t", "T", "TRUE", "true", "True")),
        *((text, False) for text in ("0", "f", "F", "FALSE", "false", "False")),
    ],
)
def test_a_gate_takes_what_gos_parser_of_booleans_takes(value, enabled):
    assert feature_gates.parse(f"ContextualLogging = {value}, CloudControllerManagerWebhook={value}") == {
        "ContextualLogging": enabled,
        "CloudControllerManagerWebhook": enabled,
    }


@pytest.mark.parametrize("item", [f"ContextualLogging{value}" for value in ("=yes", "=", "", "=01")])
def test_another_value_is_refused(item):
    with pytest.raises(ValueError, match="is neither true nor false"):
        feature_gates.parse(item)
