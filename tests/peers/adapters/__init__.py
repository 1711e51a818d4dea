# SPDX-License-Identifier: Apache-2.0
"""One module for each peer. It names the tables of the peer's tests, and passes their rows to our functions."""
