# SPDX-License-Identifier: Apache-2.0
"""Flags, answers and reads that commands share."""
