# SPDX-License-Identifier: Apache-2.0
"""Serves health, metrics, options, status and webhooks over TLS."""
