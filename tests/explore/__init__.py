# SPDX-License-Identifier: Apache-2.0
"""`make explore`: the real runtime in virtual time, with a fault at every read and write. See README.md."""
