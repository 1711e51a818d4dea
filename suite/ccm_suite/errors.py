# SPDX-License-Identifier: Apache-2.0
"""Exceptions that end a trial, or the whole run."""

from __future__ import annotations


class Failed(Exception):
    """The controller did not do what the behaviour's sentence says; the message says what it did instead."""


class Unsupported(Exception):
    """The cloud or its adapter cannot do what a behaviour needs; the message says what. The behaviour is skipped."""


class SuiteError(Exception):
    """The run cannot go on: a command does not start, the cluster is in use, or an adapter reports something wrong.
    While a behaviour runs, an adapter's error fails only that behaviour."""
