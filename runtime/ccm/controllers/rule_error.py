# SPDX-License-Identifier: Apache-2.0
"""What the rules of the controllers raise."""


class RuleError(Exception):
    """An object asks for something impossible; the message names the object's field and the way out."""
