# SPDX-License-Identifier: Apache-2.0
"""Serving certificates of kubelets."""
