# SPDX-License-Identifier: Apache-2.0
"""Real OpenStack services on loopback, raised and removed by one command. See tools/clouds/openstack/README.md.

Runs with the standard library alone, before any virtual environment exists; only `proxy` needs aiohttp, and `world`
openstacksdk, each in the environment that has it.
"""
