# SPDX-License-Identifier: Apache-2.0
"""What the controllers would do now, for each kind of object."""
