# SPDX-License-Identifier: Apache-2.0
"""The role ccm_runtime's templates, rendered by Ansible itself with the role's own variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).parents[2] / "roles" / "ccm_runtime"


def templar(**variables: Any) -> Templar:
    """With the role's defaults and variables, and `variables` above them."""
    loader = DataLoader()
    known: dict[str, Any] = {}
    for path in (ROLE / "defaults" / "main.yml", *sorted((ROLE / "vars" / "main").glob("*.yml"))):
        known |= loader.load_from_file(str(path), trusted_as_template=True)
    return Templar(loader=loader, variables=known | {"ccm_runtime_cloud_provider": "sim"} | variables)


def rendered(template: str, **variables: Any) -> list[dict[str, Any]]:
    """The objects in it."""
    text = trust_as_template((ROLE / "templates" / template).read_text())
    return [document for document in yaml.safe_load_all(templar(**variables).template(text)) if document]
