# SPDX-License-Identifier: Apache-2.0
"""The exception that the controllers' rules raise."""


class RuleError(Exception):
    """An object requests something impossible. The message names the object's field and says how to fix it."""


class ServiceRuleError(RuleError):
    """The Service contains a value that cannot be used. The message names the field and the value."""
