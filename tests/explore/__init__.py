# SPDX-License-Identifier: Apache-2.0
"""`make explore`: the real runtime in virtual time, with faults at reads and writes. See README.md."""
