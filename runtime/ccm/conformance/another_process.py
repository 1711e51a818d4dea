# SPDX-License-Identifier: Apache-2.0
"""Computes fingerprints in another process, where Python's `hash` and the order of sets differ.

The kit starts it as `python -m ccm.conformance.another_process`, with a pickled question on its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any

from ccm.cloud import Backend, Backends, CloudError, LoadBalancers, LoadBalancerSpec, ProviderConfig

from .subject import Subject
from .world import NotRun

#: The time for starting Python and importing a provider, in seconds.
DEADLINE = 60.0


def fingerprint_or_refusal(load_balancers: LoadBalancers, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
    """Return the fingerprint, or the name of the contract's error if the provider does not support such a Service."""
    try:
        return load_balancers.fingerprint(spec, backends)
    except CloudError as error:
        return type(error).__name__


async def fingerprints(subject: Subject, specs: Sequence[LoadBalancerSpec], backends: Sequence[Backend]) -> list[str]:
    """Return the fingerprint of each Service, or its refusal, from a process with another hash seed. Raises NotRun if
    that process cannot import the provider."""
    config = (subject.config.text, subject.config.source, dict(subject.config.environment))
    try:
        question = pickle.dumps((subject.create, config, list(specs), list(backends)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise NotRun(f"needs a provider class that another process can import: {error}") from None
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            answer, errors = await process.communicate(question)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        reason = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise NotRun(f"needs a provider that another process can import: {' '.join(reason)}")
    fingerprints_there: list[str] = json.loads(answer)
    return fingerprints_there


def main() -> None:
    create, (text, source, environment), specs, backends = pickle.loads(sys.stdin.buffer.read())
    load_balancers: Any = create(ProviderConfig(text, source, environment)).load_balancers
    shared = Backends(backends)
    json.dump([fingerprint_or_refusal(load_balancers, spec, shared) for spec in specs], sys.stdout)


if __name__ == "__main__":
    main()
