# SPDX-License-Identifier: Apache-2.0
"""Read-only commands: `ccm explain`, `ccm plan`, `ccm nodes`."""
