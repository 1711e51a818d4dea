# SPDX-License-Identifier: Apache-2.0
"""Starts and removes real OpenStack services on loopback with one command. See tools/clouds/openstack/README.md.

It needs only the standard library, because it runs before any virtual environment exists. Only `proxy` needs aiohttp
and cryptography, and `world` openstacksdk; each runs in an environment that has them.
"""
