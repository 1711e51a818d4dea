# SPDX-License-Identifier: Apache-2.0
"""`ccm status`, and the page that it reads of each Pod."""
