# SPDX-License-Identifier: Apache-2.0
"""The exceptions that the controllers' rules raise."""


class RuleError(Exception):
    """A rule forbids what a controller would do for an object. The message says why."""


class ServiceRuleError(RuleError):
    """The Service contains a value that cannot be used. The message names the field and the value."""
