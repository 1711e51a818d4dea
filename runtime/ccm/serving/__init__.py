# SPDX-License-Identifier: Apache-2.0
"""Serves health, metrics, options and webhooks over TLS, to authorized clients."""
