# SPDX-License-Identifier: Apache-2.0
"""An external cloud-controller-manager for Kubernetes; see docs/architecture.md for its layers."""

__version__ = "0.1.0"
