# SPDX-License-Identifier: Apache-2.0
"""Renders the templates of the role ccm_runtime with Ansible itself, and with the role's own variables."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible._internal._templating._jinja_bits import AnsibleEnvironment, _TemplateCompileContext
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles" / "ccm_runtime"
FILTER = "outoftree.ccm.vendor_rollout"


#: Attributes of an environment that change how a text compiles: a template's first line may set them.
SYNTAX = (
    *(f"{kind}_{end}_string" for kind in ("block", "variable", "comment") for end in ("start", "end")),
    *("line_statement_prefix", "line_comment_prefix", "newline_sequence"),
    *("trim_blocks", "lstrip_blocks", "keep_trailing_newline"),
)
COMPILED: dict[tuple[Any, ...], Any] = {}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Environment(AnsibleEnvironment):  # type: ignore[misc]
    """Ansible's environment with a cache of compiled texts: tests render the same hundred texts a thousand times."""

    def compile(self, source: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(source, str) or arguments or options:
            return super().compile(source, *arguments, **options)
        escaping = _TemplateCompileContext.current(optional=True)
        key = (source, escaping and escaping.escape_backslashes, *(getattr(self, name) for name in SYNTAX))
        if key not in COMPILED:
            COMPILED[key] = super().compile(source)
        return COMPILED[key]


def of_collection(name: str) -> Any:
    """Return a module of the collection from this checkout, by its name under `plugins`.

    Outside of a play, Ansible does not find the collection by its full name.
    """
    plugins = "ansible_collections.outoftree.ccm.plugins"
    try:
        found = importlib.util.find_spec(plugins)
    except ImportError:
        found = None
    if found is None:
        sys.path.insert(0, str(ROOT / "build" / "collections"))
        importlib.invalidate_caches()
    return importlib.import_module(f"{plugins}.{name}")


@cache
def vendor_rollout() -> Any:
    """Return the role's filter."""
    return of_collection("filter.vendor_rollout").vendor_rollout


@cache
def own_variables() -> dict[str, Any]:
    """Return the role's defaults and variables."""
    known: dict[str, Any] = {}
    for path in (ROLE / "defaults" / "main.yml", *sorted((ROLE / "vars" / "main").glob("*.yml"))):
        known |= DataLoader().load_from_file(str(path), trusted_as_template=True)
    return known


@cache
def vendor_file(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROLE / "files" / "vendors" / f"{name}.yml").read_text())
    return found


def templar(**variables: Any) -> Templar:
    """Return a templar with the role's defaults and variables, which `variables` override."""
    known = dict(own_variables())
    # In a play, a lookup reads the vendor's file. Outside of one, Ansible does not find the plugin by its full name.
    if vendor := variables.get("ccm_runtime_vendor"):
        known["__ccm_runtime_vendor"] = vendor_file(vendor)
    provider = {} if "ccm_runtime_vendor" in variables else {"ccm_runtime_cloud_provider": "sim"}
    made = Templar(loader=DataLoader(), variables=known | provider | variables)
    made._engine.environment.__class__ = Environment
    made._engine.environment.filters[FILTER] = vendor_rollout()
    return made


def value(name: str, **variables: Any) -> Any:
    """Return the value of a variable of the role, with `variables` set."""
    return templar(**variables).template(trust_as_template("{{ " + name + " }}"))


def rendered(template: str, **variables: Any) -> list[dict[str, Any]]:
    """Return the objects in a rendered template."""
    text = trust_as_template((ROLE / "templates" / template).read_text())
    return [document for document in yaml.load_all(templar(**variables).template(text), LOADER) if document]
