# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a process: start, permissions, leadership, controllers, reloads, and shutdown."""
