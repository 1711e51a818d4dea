# SPDX-License-Identifier: Apache-2.0
"""Text of users, machines and clouds in messages, as the framework shows it: short, on one line, and harmless."""

from ccm.base.text import printable, quoted, shorten

__all__ = ["printable", "quoted", "shorten"]
