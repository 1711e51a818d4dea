# SPDX-License-Identifier: Apache-2.0
"""The commands of `ccm.cli.COMMANDS` besides the controller, and what they share. None of them writes to the cluster or
to the cloud."""
