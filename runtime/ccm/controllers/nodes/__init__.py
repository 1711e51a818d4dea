# SPDX-License-Identifier: Apache-2.0
"""Nodes: what they are, whether their machine exists, and which machine they are."""
