# SPDX-License-Identifier: Apache-2.0
"""Classic Load Balancers."""
