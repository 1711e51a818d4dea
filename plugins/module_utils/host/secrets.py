# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the secrets in configuration files of k3s and RKE2 on the host.

The planner needs the files' text, but the results of a module end up in facts and in the output of C(-v) and C(--diff). Therefore the
values leave the host as placeholders, and are filled in again when the file is written. Pure and stdlib-only (Python 3.8).
"""

from __future__ import annotations

import itertools
import re
from typing import Iterable, List

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.registration import SWITCHES

KEYS = ("token", "agent-token", "cluster-secret", "datastore-endpoint", "etcd-s3-access-key", "etcd-s3-secret-key",
        "etcd-s3-session-token", "etcd-s3-proxy", "vpn-auth")

#: The options that the planner needs. Other options of a command line may be secret.
PUBLIC_OPTIONS = ("kubelet-arg", "kube-apiserver-arg", "kube-controller-manager-arg", "disable", "disable-cloud-controller",
                  "cloud-provider-name", "cloud-provider-config", "node-name", "node-name-from-cloud-provider-metadata")

#: A key, or C(t), the short name of C(token).
_KEY = r"[\"']?(?:{0}|(?<![\w-])t)\+?[\"']?".format("|".join(KEYS))
#: A key at the beginning of a line, whose value goes on in lines that are indented deeper. It may be in a comment, such as an old token.
_ENTRY = r"(?P<indent>[ \t]*(?:#[ \t#]*)?){0}[ \t]*:(?:[ \t]+|(?:[ \t]*(?:#.*)?\r?\n)+(?P=indent)[ \t]+)".format(_KEY)
_MORE = r"(?:[ \t]*\r?\n(?:[ \t]*\r?\n)*(?P=indent)[ \t]+\S.*?)*"
#: A key elsewhere in a comment.
_REMARK = r".*?#.*?{0}[ \t]*[:=][ \t]*".format(_KEY)
_SECRET = re.compile(r"^(?P<lead>{0}|{1})(?P<value>[^\s#].*?{2})(?P<end>[ \t]*\r?)$".format(_ENTRY, _REMARK, _MORE), re.MULTILINE)
#: A key in a mapping in braces, in which a value has no clear end, or after C(?).
_UNCLEAR = re.compile(r"\A(?:\s|---|[#%].*\n)*\{{(?=[\s\S]*{0}\s*:)|^[^#\n]*[{{,?][ \t]*{0}[ \t]*:|^[^#\n]*\?[ \t]+{0}\s*$".format(_KEY), re.MULTILINE)
_PLACEHOLDER = "outoftree-ccm-hidden-{0}"


#: User and password of a URL, or in front of a host's name. The digest of an image (C(name:tag@sha256:...)) is neither.
_CREDENTIALS = re.compile(r"(?P<lead>://)[^\s\"'<>]*:[^\s\"'<>]*@|(?<![^\s\"'=,])[^\s:/@=\"',]+:[^\s/@\"']+@(?!sha\d+:)(?=[\w\[])")


def hide_credentials(text: str) -> str:
    """Return the text for people to read: "hidden" stands for the user and the password of URLs and proxies."""
    return _CREDENTIALS.sub(lambda match: (match.group("lead") or "") + "hidden@", text)


def hide(text: str) -> str:
    """Return the text with a numbered placeholder for each secret, or one for the whole text if it is unclear where a secret ends."""
    count = itertools.count()
    hidden = _SECRET.sub(lambda match: match.group("lead") + _PLACEHOLDER.format(next(count)) + match.group("end"), text)
    return _PLACEHOLDER.format(0) if _UNCLEAR.search(hidden) else hidden


def unclear(text: str) -> bool:
    """Return whether it is unclear where a secret of the text ends, so that the whole text is hidden."""
    return hide(text) == _PLACEHOLDER.format(0)


def reveal(text: str, original: str) -> str:
    """Return the text with the secrets of the original in place of the placeholders."""
    values = [original] if unclear(original) else [match.group("value") for match in _SECRET.finditer(original)]
    return re.sub(_PLACEHOLDER.format(r"(\d+)(?!\d)"),
                  lambda match: values[int(match.group(1))] if int(match.group(1)) < len(values) else match.group(0), text)


def public_arguments(arguments: Iterable[str]) -> List[str]:
    """Return the arguments of k3s or RKE2 that the planner needs, each as one word."""
    kept = []
    words = iter(arguments)
    for word in words:
        name, equals, unused = word[2:].partition("=") if word.startswith("--") else ("", "", "")
        if name in PUBLIC_OPTIONS:
            value = None if equals or name in SWITCHES else next(words, None)
            kept.append(word if value is None else "{0}={1}".format(word, value))
    return kept
