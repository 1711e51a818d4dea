# SPDX-License-Identifier: Apache-2.0
"""What `/livez` and `/readyz` mean (upstream's checks always pass, and it has neither path: reference W25).

Alive: this process can still do its work; a failing check asks the kubelet to restart it.
Ready: it could take over now: its view of the cluster is fresh and the cloud has accepted its credentials. A cloud that
is down later does not make it unready, since a restart would not help; the metrics and the Lease tell that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: Returns why the check fails, or None.
Check = Callable[[], str | None]


def report(checks: Mapping[str, Check], *, verbose: bool, exclude: frozenset[str] = frozenset()) -> tuple[int, str]:
    """HTTP status and body, in the form of the Kubernetes components."""
    lines, failed = [], False
    for name, check in checks.items():
        if name in exclude:
            lines.append(f"[+]{name} excluded: ok")
            continue
        reason = check()
        failed = failed or reason is not None
        lines.append(f"[+]{name} ok" if reason is None else f"[-]{name} failed: {reason}")
    if failed:
        return 500, "\n".join([*lines, "check failed", ""])
    return 200, "\n".join([*lines, "check passed", ""]) if verbose else "ok"
