# SPDX-License-Identifier: Apache-2.0
"""Flags, the `--config` file and `/configz`: the configuration of a process."""
