# SPDX-License-Identifier: Apache-2.0
"""Load balancers of Octavia."""
