# SPDX-License-Identifier: Apache-2.0
"""Routes to the Pods of Nodes."""
