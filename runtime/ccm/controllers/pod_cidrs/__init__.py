# SPDX-License-Identifier: Apache-2.0
"""Pod CIDRs of Nodes, assigned by the cluster or by the cloud."""
