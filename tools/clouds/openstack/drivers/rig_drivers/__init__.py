# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for amphorae, agents and hypervisors below real OpenStack services, and the server of these services.

The package is installed in the rig's own virtual environment; neither the tests nor the product import it.
"""
