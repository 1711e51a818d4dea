# SPDX-License-Identifier: Apache-2.0
"""Why a process ends before it has done any work."""


class StartError(Exception):
    """The process cannot do its work; the message says why and what to do."""
