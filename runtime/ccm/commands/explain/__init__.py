# SPDX-License-Identifier: Apache-2.0
"""`ccm explain`: one file for each kind of object."""
