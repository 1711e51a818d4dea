# SPDX-License-Identifier: Apache-2.0
"""Checks behaviours of a cloud-controller-manager from outside: only through the Kubernetes API and the cloud."""
