# SPDX-License-Identifier: Apache-2.0
"""What the collection's playbooks cost over 50, 200 and 1,000 hosts: `make bench-collection`."""
