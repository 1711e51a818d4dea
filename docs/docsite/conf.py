# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the site of `make docs-site`: the pages of docs/, and antsibull-docs' pages about the collection."""

from __future__ import annotations

project = "outoftree.ccm"
author = "The outoftree.ccm authors"
copyright = "the outoftree.ccm authors"
title = html_title = "outoftree.ccm"

extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinxcontrib.mermaid"]
root_doc = "index"
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
pygments_style = "ansible"
html_theme = "sphinx_ansible_theme"
html_theme_options = {"display_version": False}
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

# Pages about modules point into Ansible's own documentation by labels that only its site has. antsibull-docs itself
# checks the references within the collection, and links of our pages are checked as myst.xref_missing.
suppress_warnings = ["ref.ref"]
