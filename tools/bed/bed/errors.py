# SPDX-License-Identifier: Apache-2.0
"""The only exception that the command line shows; its text names the problem and what to do."""


class BedError(Exception):
    """The bed cannot do something; the message is one sentence for a person."""
