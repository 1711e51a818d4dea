# SPDX-License-Identifier: Apache-2.0
"""`ccm doctor`: one file for each subject that it checks."""
