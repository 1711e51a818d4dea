# SPDX-License-Identifier: Apache-2.0
"""Zone and region labels of PersistentVolumes."""
