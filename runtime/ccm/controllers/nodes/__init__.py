# SPDX-License-Identifier: Apache-2.0
"""The controllers of Nodes, and how they find out to which cloud and machine a Node belongs."""
