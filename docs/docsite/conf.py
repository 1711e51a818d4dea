# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the site of `make docs-site`: the pages of docs/, and antsibull-docs' pages about the collection."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

_collection = yaml.safe_load(Path(os.environ["COLLECTION"], "galaxy.yml").read_text())

project = "outoftree.ccm"
author = "The outoftree.ccm authors"
copyright = "the outoftree.ccm authors"
version = release = _collection["version"]
html_title = f"outoftree.ccm {version}"
html_short_title = "outoftree.ccm"

extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinxcontrib.mermaid"]
root_doc = "index"
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
html_theme = "furo"
html_theme_options = {
    "footer_icons": [
        {"name": "Source", "url": _collection["repository"], "html": "Source", "class": "link"},
        {"name": "Issues", "url": _collection["issues"], "html": "Issues", "class": "link"},
    ],
}
html_static_path = ["static"]
html_css_files = ["site.css"]
antsibull_ext_color_scheme = "default-autodark"  # as the theme: what the reader's system says
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

# Pages about modules point into Ansible's own documentation by labels that only its site has. antsibull-docs itself
# checks the references within the collection, and links of our pages are checked as myst.xref_missing.
suppress_warnings = ["ref.ref"]
