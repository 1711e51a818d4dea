# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud: an HTTP API with state, faults and a journal, and (`fabric`) the network of that cloud.

It is a separate package, so that no image of the controller contains its fault API. It imports nothing from `ccm`, and
`ccm` imports it only to run `ccm sim`: the provider `sim` uses its HTTP API, as any provider uses its cloud's. Tests
use `ccm_simcloud.testing`.
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run the simulator (`ccm sim`) until SIGTERM or SIGINT. Return the exit code."""
    from .command import main as run

    return run(argv)
