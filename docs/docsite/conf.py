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
version = release = os.environ["DOCS_VERSION"]
html_title = f"outoftree.ccm {version}"
html_short_title = "outoftree.ccm"

extensions = ["myst_parser", "sphinx_antsibull_ext"]
root_doc = "index"
myst_heading_anchors = 4
# Without our own copy of mermaid, which `make docs-site` puts there, a diagram is shown as its text.
if Path(__file__).with_name("static").joinpath("mermaid").is_dir():
    extensions.append("sphinxcontrib.mermaid")
    myst_fence_as_directive = ["mermaid"]
    mermaid_use_local = "mermaid/mermaid.esm.min.mjs"
templates_path = ["templates"]
html_theme = "furo"
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_theme_options = {
    "footer_icons": [
        {"name": "Source", "url": _collection["repository"], "html": "Source", "class": "link"},
        {"name": "Issues", "url": _collection["issues"], "html": "Issues", "class": "link"},
    ],
}
html_static_path = ["static"]
html_css_files = ["site.css"]
antsibull_ext_color_scheme = "default-autodark"  # like the theme, light or dark as the reader's system is set
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

# Pages about modules refer to Ansible's own documentation by labels that only Ansible's site has. antsibull-docs itself
# checks the references within the collection, and myst.xref_missing reports broken links of our pages.
suppress_warnings = ["ref.ref"]
if "sphinxcontrib.mermaid" not in extensions:
    suppress_warnings.append("misc.highlighting_failure")
