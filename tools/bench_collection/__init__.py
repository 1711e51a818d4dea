# SPDX-License-Identifier: Apache-2.0
"""`make bench-collection`: measures what the collection's playbooks cost over 50, 200 and 1,000 hosts."""
