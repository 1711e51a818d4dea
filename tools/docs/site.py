# SPDX-License-Identifier: Apache-2.0
"""`make docs-site`: writes docs/ and antsibull-docs' pages of the collection as one version of the site in build/site.

    python tools/docs/site.py [--version 1.0.0]

The version is build/site/devel, or build/site/1.0.0 for a release. Other versions there stay: see site_versions.py.
A link to a page or an image in docs/ stays as it is; a link to any other file of the repository becomes a link to that
file on GitHub. A broken link, a page that docs/index.md does not name, a script from another host, and every warning
of Sphinx are errors.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mermaid
import site_versions
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
SOURCES = "https://github.com/outoftree/ccm"
COLLECTION = "collection/index"
IMAGES = (".svg", ".png")
#: Files of docs/ that the site has: pages and images.
KEPT = (".md", *IMAGES)

_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
_FOREIGN = re.compile(r"""["'](?:https?:)?//[^"']+?\.m?js\b[^"']*""")
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


class BrokenLink(Exception):
    """A page names a file that does not exist."""


def page(path: Path, source: str) -> str:
    """Return a page with its links as the site needs them. `source`: the branch or tag for links to other files.

    Raises BrokenLink.
    """

    def leads(match: re.Match[str]) -> str:
        link = match.group(1)
        if link.startswith(("http://", "https://", "#", "mailto:")):
            return link
        target = Path(os.path.normpath(path.parent / link.partition("#")[0]))
        if not target.exists():
            raise BrokenLink(f"{path.relative_to(ROOT)}: {link} leads nowhere")
        if target.is_relative_to(DOCS) and target.suffix in KEPT:
            return link
        return f"{SOURCES}/{'tree' if target.is_dir() else 'blob'}/{source}/{target.relative_to(ROOT)}"

    return _LINK.sub(leads, path.read_text())


def _title(text: str) -> str:
    """Return the text of a link as an entry of the navigation: with a capital, unless it begins with code."""
    return text.replace("`", "") if text.startswith("`") else text[0].upper() + text[1:].replace("`", "")


def without_contents(page: str) -> str:
    """Remove the table of contents from a page of antsibull-docs: the theme shows one beside the page."""
    return re.sub(r"^\.\. contents::.*\n(?: +.*\n)*", "", page, flags=re.MULTILINE)


def with_contents(index: str) -> str:
    """Add a table of contents to the first page. It has the page's links, by the headings above them."""
    parts = []
    for heading, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", index, re.MULTILINE):
        named = re.findall(r"\[([^\]]+)\]\(([^)\s]+\.md)\)", body)
        pages = [f"{_title(text)} <{link}>" for text, link in named if "://" not in link]
        if heading == "Reference":
            pages.append(f"Modules, roles and filters <{COLLECTION}>")
        parts.append("\n".join(["```{toctree}", ":hidden:", f":caption: {heading}", "", *dict.fromkeys(pages), "```"]))
    return index + "\n" + "\n\n".join(parts) + "\n"


def write_sources(source: str) -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path in sorted(DOCS.rglob("*")):
        target = SOURCE / path.relative_to(DOCS)
        if path.suffix in KEPT:
            target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(with_contents(page(path, source)) if path == DOCS / "index.md" else page(path, source))
        elif path.suffix in IMAGES:
            shutil.copy(path, target)
    shutil.copy(DOCS / "docsite" / "conf.py", SOURCE)
    for folder in ("static", "templates"):
        shutil.copytree(DOCS / "docsite" / folder, SOURCE / folder)


def foreign_scripts(site: Path) -> list[str]:
    """Return the scripts that pages would load from other hosts, each as "PAGE: ADDRESS"."""
    return [
        f"{path.relative_to(site)}: {address}"
        for path in sorted(site.rglob("*.html"))
        for script in _SCRIPT.findall(path.read_text())
        for address in _FOREIGN.findall(script)
    ]


def run(*command: str, version: str) -> None:
    """Run a program of this environment; exit if it fails."""
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections"),
        "COLLECTION": str(ROOT),
        "DOCS_VERSION": version,
    }
    done = subprocess.run([str(programs / command[0]), *command[1:]], cwd=ROOT, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed with exit status {done.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="", help="a release whose tag is checked out; default: devel")
    release = parser.parse_args().version
    named = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    if release not in ("", named):
        sys.exit(f"VERSION={release}: galaxy.yml says {named}. Check out the release's tag first")
    version = release or site_versions.DEVEL
    folder = SITE / version
    try:
        write_sources(release or "main")
    except BrokenLink as broken:
        sys.exit(str(broken))
    mermaid.into(SOURCE / "static")
    (SOURCE / "collection").mkdir()
    run(
        "antsibull-docs", "collection", "--use-current", "--squash-hierarchy", "--indexes", "--fail-on-error",
        "--no-add-antsibull-docs-version", "--dest-dir", str(SOURCE / "collection"), "outoftree.ccm", version=version,
    )  # fmt: skip
    for path in (SOURCE / "collection").glob("*.rst"):
        path.write_text(without_contents(path.read_text()))
    shutil.rmtree(folder, ignore_errors=True)
    run(
        "sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "-d", str(ROOT / "build" / "site-doctrees"),
        str(SOURCE), str(folder), version=version,
    )  # fmt: skip
    if found := foreign_scripts(folder):
        sys.exit("The site would load scripts of other hosts:\n" + "\n".join(found))
    there = site_versions.publish(SITE)
    print(f"{folder.relative_to(ROOT)}/index.html: {len(list(folder.rglob('*.html')))} pages")
    print(f"Versions in {SITE.relative_to(ROOT)}: {', '.join(version.name for version in there)}")


if __name__ == "__main__":
    main()
