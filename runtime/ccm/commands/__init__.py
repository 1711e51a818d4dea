# SPDX-License-Identifier: Apache-2.0
"""Commands that only read: `ccm explain node`, `ccm nodes`."""
