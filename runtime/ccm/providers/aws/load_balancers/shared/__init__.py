# SPDX-License-Identifier: Apache-2.0
"""What both types of load balancers share. The modules here import nothing from either type."""
