# SPDX-License-Identifier: Apache-2.0
"""The clouds that the suite knows by itself."""
