# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read on a host, on folders that look like one."""

from __future__ import annotations

import os

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils import _host

COMPONENT = "kube-controller-manager"


@pytest.fixture
def container_log(tmp_path, monkeypatch):
    monkeypatch.setattr(_host, "POD_LOGS", str(tmp_path))

    def write(number, written, text):
        path = tmp_path / "kube-system_{0}-node_uid".format(COMPONENT) / COMPONENT / "{0}.log".format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (written, written))

    return write


def test_the_last_words_are_those_of_the_newest_container_that_said_any(container_log):
    container_log(0, 100, "2026-11-21T12:00:00Z stderr F of an older process\n")
    container_log(1, 200, "2026-11-21T12:00:01Z stderr F Usage:\n2026-11-21T12:00:01Z stderr F Error: unknown flag\n")
    container_log(2, 201, "")
    assert _host.pod_log(COMPONENT, since=150) == ["Usage:", "Error: unknown flag"]


def test_what_was_said_before_the_change_is_no_explanation(container_log):
    container_log(0, 100, "2026-11-21T12:00:00Z stderr F of an older process\n")
    assert _host.pod_log(COMPONENT, since=150) == []
