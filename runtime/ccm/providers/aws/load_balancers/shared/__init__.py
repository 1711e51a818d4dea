# SPDX-License-Identifier: Apache-2.0
"""What both types of load balancers share. It knows neither of them."""
