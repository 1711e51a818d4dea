# SPDX-License-Identifier: Apache-2.0
"""Writes AWX's surveys in docs/how-to/awx from the argument_specs of both roles: python tools/docs/awx_files.py

A survey asks only for variables that differ from run to run. Variables of the cluster stay in its inventory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from variables_page import meaning, public

FOLDER = Path(__file__).parents[2] / "docs" / "how-to" / "awx"

#: The variables that each job's survey asks for, by the job's playbook. The other jobs have no survey.
QUESTIONS = {
    "preflight": ("ccm_install_takeover", "ccm_install_adopt", "ccm_install_reregister"),
    "site": (
        "ccm_install_takeover",
        "ccm_install_adopt",
        "ccm_install_reregister",
        "ccm_install_batch_pause",
        "ccm_install_max_failed_workers",
        "ccm_install_verify_active",
        "ccm_install_probe_url",
    ),
    "rollback": ("ccm_install_rollback_force",),
}
#: Ansible's type -> AWX's type. Where AWX has no such type, the survey asks for a text, and the roles convert it.
TYPES = {"int": "integer", "bool": "multiplechoice", "str": "text", "path": "text", "raw": "text"}


def question(name: str, option: dict[str, Any]) -> dict[str, Any]:
    """Return the question about a variable, in the form of AWX's API."""
    *what, reason = option["description"]
    kind, default = option["type"], option.get("default", "")
    choices = ["true", "false"] if kind == "bool" else [str(choice) for choice in option.get("choices", ()) if choice]
    return {
        "question_name": meaning(what[0]).replace("`", "").split(". ")[0].rstrip("."),
        "question_description": meaning(reason).replace("`", ""),
        "variable": name,
        "type": "multiplechoice" if choices else TYPES[kind],
        "choices": choices,
        "default": str(default).lower() if kind == "bool" else default if kind == "int" else str(default),
        "required": bool(option.get("required", False)),
        "min": 0,
        "max": 1000000 if kind == "int" else 1024,
        "new_question": True,
    }


def surveys() -> dict[str, dict[str, Any]]:
    """Return the surveys, by the name of their playbook."""
    options = public()
    return {
        book: {"name": "", "description": "", "spec": [question(name, options[name]) for name in names]}
        for book, names in QUESTIONS.items()
    }


def texts() -> dict[str, str]:
    """Return the content of each file, by its name."""
    return {f"survey-{book}.json": json.dumps(survey, indent=2) + "\n" for book, survey in surveys().items()}


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text)
