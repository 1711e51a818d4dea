# SPDX-License-Identifier: Apache-2.0
"""What a process serves: health, metrics, options and webhooks, over TLS, to those who may see it."""
