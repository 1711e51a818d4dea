# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cloud configurations on hosts that no component has read since the migration removed --cloud-config. Pure; runs on the Ansible controller.

They contain credentials of the cloud. Nothing deletes them, because a rollback needs them.
"""

from __future__ import annotations

import base64
from typing import Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import cloud_configs
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan


def check(plan: Plan, detected: Dict[str, HostFacts]) -> None:
    """Add a note for each cloud configuration that nothing reads any more."""
    plan["notes"] += notes(detected)


def notes(detected: Dict[str, HostFacts]) -> List[str]:
    """Return a sentence for each cloud configuration that nothing on its host reads any more."""
    return ["{0}: the migration removed --cloud-config={1}, so no component of Kubernetes reads that file any more. A rollback needs it. "
            "Once you will not roll back, and if no CSI driver or other Pod mounts it, delete it and revoke its credentials".format(
                host, host_facts.readable(path)) for host, facts in detected.items() for path in unread(facts)]


def unread(facts: HostFacts) -> List[str]:
    """Return the cloud configurations that exist on a host, that a file named before a run changed it, and that nothing names now."""
    if not facts.get("cloud_configs"):
        return []
    before = {path for entry in facts["journal"].values() for baseline in entry.get("baselines", [])
              for path in cloud_configs(_text(baseline["original"]))}
    texts = [_text(entry["content"]) for entry in facts["files"].values() if entry["exists"]]
    texts += [" ".join(running["flags"]) for running in facts["components"].values()] + [" ".join(facts["kubelet"].get("flags", []))]
    now = {path for text in texts for path in cloud_configs(text)}
    return sorted((before - now) & {*facts["cloud_configs"]})


def _text(content: str) -> str:
    return base64.b64decode(content).decode("utf-8", "replace")
