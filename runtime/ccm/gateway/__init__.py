# SPDX-License-Identifier: Apache-2.0
"""The way to the cloud: every call passes the gateway, which bounds, times and counts it; one listing answers many."""
