# SPDX-License-Identifier: Apache-2.0
"""Load balancers of AWS, of both types, and what the types share."""
