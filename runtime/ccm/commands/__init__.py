# SPDX-License-Identifier: Apache-2.0
"""The commands of `ccm.cli.COMMANDS` beside the controller, and what they share. All but `completion` only read."""
