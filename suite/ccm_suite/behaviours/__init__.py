# SPDX-License-Identifier: Apache-2.0
"""The behaviours, one file for each topic."""
