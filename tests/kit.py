# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance kit for providers on stand-ins of clouds, with time limits for answers.

PATIENT is long, because on a busy machine an answer may take some seconds; no case depends on it. In cases in which no
answer comes, the provider waits only for HASTY.
"""

from __future__ import annotations

import dataclasses
import re

from ccm.cloud import ProviderConfig
from ccm.conformance import Case, Result, Subject
from ccm.conformance import check as check_any

#: Seconds that a provider waits for an answer: usually, and in cases without an answer.
PATIENT, HASTY = 60, 3
#: Cases without an answer.
UNANSWERED = ("no_answer_is_transient", "a_cancelled_call_ends")


async def check(case: Case, subject: Subject) -> Result:
    """Run a case as the kit does, with a short `request_timeout` (in any spelling) if no answer comes."""
    if case.name.rpartition(".")[2] in UNANSWERED:
        subject = dataclasses.replace(subject, config=hasty(subject.config))
    return await check_any(case, subject)


def hasty(config: ProviderConfig) -> ProviderConfig:
    text = re.sub(r"(?i)(?<![-_\w])((?:request[-_]?)?timeout\W+)\d+", rf"\g<1>{HASTY}", config.text)
    variables = dict(config.environment)
    variables |= {name: f"{HASTY}s" for name in variables if name.endswith("REQUEST_TIMEOUT")}
    assert (text, variables) != (config.text, dict(config.environment)), "no request_timeout in the configuration"
    return ProviderConfig(text, config.source, variables)
