# SPDX-License-Identifier: Apache-2.0
"""The behaviours, by what they are about."""
