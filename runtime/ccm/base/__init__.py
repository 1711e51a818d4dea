# SPDX-License-Identifier: Apache-2.0
"""What every room may use: the clock, durations, text of strangers, and strict reading of YAML."""
