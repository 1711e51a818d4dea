# SPDX-License-Identifier: Apache-2.0
"""The commands that people run beside the controller, and what they share. No command in this package writes to the
cluster or to the cloud."""
