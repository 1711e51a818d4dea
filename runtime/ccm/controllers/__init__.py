# SPDX-License-Identifier: Apache-2.0
"""Decides how Nodes, Services, routes and volumes should look, and writes the changes.

A controller of another package may import from this package, `ccm.engine.objects`, `ccm.engine.queue` and `ccm.cloud`.
"""

from .controller_context import ControllerContext
from .controller_spec import ControllerSpec, Right
from .shared.context import Controller, log_failure
from .shared.watched_kinds import NODES, SERVICES, Watched

__all__ = ["NODES", "SERVICES", "Controller", "ControllerContext", "ControllerSpec", "Right", "Watched", "log_failure"]
