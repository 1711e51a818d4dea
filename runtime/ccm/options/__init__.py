# SPDX-License-Identifier: Apache-2.0
"""Flags, the `--config` file and `/configz`: what a process is told to do."""
