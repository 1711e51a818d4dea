# SPDX-License-Identifier: Apache-2.0
"""What ends a trial, and what ends a run."""

from __future__ import annotations


class Failed(Exception):
    """The controller did not behave as the sentence says; the message says what was seen instead."""


class Unsupported(Exception):
    """The cloud or its adapter cannot do what a behaviour asks for; the message says what. The behaviour is skipped."""


class SuiteError(Exception):
    """The run cannot go on: a command that does not start, a cluster in use, an adapter that lies."""
