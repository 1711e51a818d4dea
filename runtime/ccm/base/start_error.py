# SPDX-License-Identifier: Apache-2.0
"""The error that stops a process at start."""


class StartError(Exception):
    """The process cannot start; the message says why and what to do."""
