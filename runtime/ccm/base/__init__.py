# SPDX-License-Identifier: Apache-2.0
"""Helpers that every package may use: the clock, durations, untrusted text, and strict reading of YAML."""
