# SPDX-License-Identifier: Apache-2.0
"""One module for each peer: the tables of its tests, and how our functions are given their rows."""
