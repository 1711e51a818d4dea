# SPDX-License-Identifier: Apache-2.0
"""Labels of volumes that a cloud provides."""
