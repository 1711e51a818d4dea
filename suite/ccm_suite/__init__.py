# SPDX-License-Identifier: Apache-2.0
"""Behaviours of a cloud-controller-manager, checked from outside: by the Kubernetes API and the cloud alone."""
