# SPDX-License-Identifier: Apache-2.0
"""The adapters of clouds that come with the suite."""
