# SPDX-License-Identifier: Apache-2.0
"""The one exception a person at the command line may see; its text names the thing and the way out."""


class BedError(Exception):
    """Something the bed cannot do, said in one sentence for a person."""
