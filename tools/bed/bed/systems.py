# SPDX-License-Identifier: Apache-2.0
"""What a machine of a bed can run: a release of Debian, and a container runtime. Pure."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT = "bookworm"


@dataclass(frozen=True)
class System:
    """What a machine runs. ``packages`` install the container runtime, and ``unit`` starts it. ``programs``, which
    go_programs builds, are mounted over those of the packages, or added where Debian has none. ``stores`` is the
    runtime's folder below /var/lib. The command ``asks`` succeeds once the runtime runs. ``python`` is the version of
    Python that Ansible uses there if the release does not have it (pythons); "" for the release's own Python."""

    suite: str
    packages: str = "containerd"
    unit: str = "containerd.service"
    socket: str = "unix:///run/containerd/containerd.sock"
    stores: str = "containerd"
    asks: str = "ctr version"
    programs: tuple[str, ...] = ()
    proxy_mode: str = "nftables"
    python: str = ""

    @property
    def runtime(self) -> str:
        return "CRI-O" if self.unit == "crio.service" else "containerd"


SYSTEMS = {
    "bookworm": System("bookworm"),
    "trixie": System("trixie"),
    # The kubelet needs version 1 of the CRI, and bullseye's containerd 1.4 does not have it. bullseye's nft 0.9 is too
    # old for kube-proxy.
    "bullseye": System("bullseye", programs=("containerd", "containerd-shim-runc-v2", "ctr"), proxy_mode="iptables"),
    # No Debian release has CRI-O. skopeo copies images into CRI-O's storage: CRI-O has no command for that.
    "bookworm-cri-o": System(
        "bookworm",
        packages="conmon skopeo",
        unit="crio.service",
        socket="unix:///var/run/crio/crio.sock",
        stores="containers",
        asks="crio status info",
        programs=("crio", "pinns"),
    ),
    # The oldest Python that a managed node may have. No Debian release has it.
    "bookworm-python3.8": System("bookworm", python="3.8"),
}
