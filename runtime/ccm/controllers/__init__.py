# SPDX-License-Identifier: Apache-2.0
"""Decides what Nodes, Services, routes and volumes should be, and writes it.

A controller of another package may import from this package, `ccm.engine.objects`, `ccm.engine.queue` and `ccm.cloud`.
"""

from .controller_context import ControllerContext
from .controller_spec import ControllerSpec, Right
from .shared.context import Controller, log_failure
from .shared.watched_kinds import NODES, SERVICES, Watched

__all__ = ["NODES", "SERVICES", "Controller", "ControllerContext", "ControllerSpec", "Right", "Watched", "log_failure"]
