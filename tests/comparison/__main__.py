# SPDX-License-Identifier: Apache-2.0
"""Write the table of docs/providers/index.md from `results/`."""

from .table import render

render()
