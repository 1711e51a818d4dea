# SPDX-License-Identifier: Apache-2.0
"""Access to the cloud: every call goes through the gateway, which limits and counts it; one listing answers many
queries."""
