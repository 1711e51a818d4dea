# SPDX-License-Identifier: Apache-2.0
"""`make status-picture`: writes docs/images/status-{light,dark}.png, the page `/statusz` as Chromium shows it.

    python tools/docs/status_picture.py [FOLDER]

The report is an example: a leader whose cloud failed for a while. With a FOLDER, the program writes pictures of the
page in each size to that folder, for a person to look at.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ccm.serving import status_page
from ccm.serving.status_report import (
    Breaker,
    Budget,
    Calls,
    CloudState,
    Count,
    Held,
    Process,
    Queue,
    Series,
    Status,
    Unfinished,
)

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs/images"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
#: Name -> width and height of the window, in pixels.
SIZES = {"docs": (1000, 1120), "wide": (1280, 1500), "tablet": (800, 1900), "phone": (400, 3600)}
#: Colour scheme -> its number in Chromium.
SCHEMES = {"dark": 0, "light": 1}


def example() -> Status:
    """Return the status of a leader whose cloud answered slowly and then failed, a while ago."""
    return Status(
        process=Process(
            identity="control-plane-1_0d3c2c5e",
            role="leader",
            leader="control-plane-1_0d3c2c5e",
            lease="kube-system/cloud-controller-manager",
            version="0.1.0",
            provider="openstack",
            cluster="production",
            uptime=266_400.0,
            controllers=["cloud-node", "cloud-node-lifecycle", "route", "service"],
            problems=[],
        ),
        nodes=[
            Count("ready", 118),
            Count("waits for initialisation", 1),
            Count("not ready", 2),
            Count("instance shut down", 1),
            Count("being deleted", 0),
        ],
        services=[Count("has an address", 41), Count("waits for an address", 2), Count("waits to be released", 0)],
        unfinished=[
            Unfinished("Service", "shop/checkout", "failing", 412.0, 9, "Quota exceeded for resources: ['floatingip']"),
            Unfinished("Node", "worker-121", "failing", 95.0, 6, "the cloud lists no instance named 'worker-121'"),
            Unfinished("Service", "shop/search", "waits for an address", 38.0, 0, ""),
        ],
        unfinished_in_all=3,
        held=[
            Held("Node", "worker-17", "TooYoung", "the Node is 201 s old, and must be 300 s old to be deleted", 74.0),
            Held(
                "OrphanedLoadBalancer",
                "kube_service_production_old_web",
                "ReportOnly",
                "delete it by hand, or set --delete-orphaned-load-balancers if no other cluster in this project is "
                "named 'production'",
                86_000.0,
            ),
        ],
        held_in_all=2,
        queues=[Queue("Nodes", 0, 0.0, 0, 0.0, 1, 1), Queue("service", 1, 0.4, 2, 3.1, 2, 1)],
        clouds=[
            CloudState(
                answered=1.2,
                failing=None,
                error="",
                under_way=2,
                concurrency=10,
                calls=[
                    Calls("instances.list", 8_871, 14, {"Transient": 12, "timeout": 2}, 0.84),
                    Calls("load_balancers.ensure", 97, 9, {"QuotaExceeded": 9}, 3.2),
                    Calls("load_balancers.get", 240, 0, {}, 0.19),
                    Calls("routes.list", 1_480, 3, {"Transient": 3}, 0.31),
                ],
                budgets=[Budget("all calls", 10.0, 20.0, 19.0, 0.0), Budget("load_balancers", 2.0, 5.0, 3.0, 0.0)],
                breakers=[Breaker("load_balancers", False, 2, 0.0, "Quota exceeded for resources: ['floatingip']")],
            )
        ],
        step=20.0,
        history=list(_history()),
    )


def _history() -> Iterator[Series]:
    """Yield the series of an hour with an outage of eight minutes in the middle."""

    def bump(number: int, start: int, end: int) -> float:
        return math.sin(math.pi * (number - start) / (end - start)) if start < number < end else 0.0

    hour = range(180)
    wave = [1 + 0.25 * math.sin(number / 7) + 0.15 * math.sin(number / 2.3) for number in hour]
    yield Series("cloud calls per minute", [18 * wave[n] - 12 * bump(n, 80, 104) for n in hour])
    yield Series("cloud failures per minute", [6 * bump(n, 80, 104) for n in hour])
    yield Series("mean seconds of a cloud call", [0.4 * wave[n] + 4 * bump(n, 74, 106) for n in hour])
    yield Series("API requests per minute", [52 * wave[n] for n in hour])
    yield Series("objects waiting in queues", [float(round(14 * bump(n, 82, 112))) for n in hour])
    yield Series("seconds of the longest wait in a queue", [90 * bump(n, 82, 112) for n in hour])
    yield Series("objects failing", [float(round(9 * bump(n, 80, 110) + (2 if n > 150 else 0))) for n in hour])
    yield Series("deletions held", [2.0 if n > 140 else 1.0 for n in hour])


def shoot(page: Path, picture: Path, size: tuple[int, int], scheme: str) -> None:
    """Write what Chromium shows as PNG. Raises CalledProcessError."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                program,
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={size[0]},{size[1]}",
                f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
                f"--screenshot={picture}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "statusz.html"
        page.write_text(status_page.page(example()))
        for scheme in SCHEMES:
            if sys.argv[1:]:
                for name, size in SIZES.items():
                    shoot(page, Path(sys.argv[1]) / f"status-{name}-{scheme}.png", size, scheme)
            else:
                shoot(page, IMAGES / f"status-{scheme}.png", SIZES["docs"], scheme)


if __name__ == "__main__":
    main()
