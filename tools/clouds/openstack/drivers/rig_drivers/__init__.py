# SPDX-License-Identifier: Apache-2.0
"""What stands in for amphorae, agents and hypervisors below real OpenStack services, and the way these are served.

Lives in the rig's own virtual environment; neither the tests nor the product import it.
"""
