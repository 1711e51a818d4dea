# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for amphorae, agents and hypervisors below real OpenStack services, and the WSGI server of the services.

The package is installed in the virtual environment of the services; neither the tests nor the product import it.
"""
