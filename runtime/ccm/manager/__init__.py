# SPDX-License-Identifier: Apache-2.0
"""The life of a process: start, rights, leadership, controllers, reloads, and the end."""
