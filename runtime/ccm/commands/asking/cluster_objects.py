# SPDX-License-Identifier: Apache-2.0
"""The parts of objects that `ccm doctor` and `ccm status` read. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct, field

from ccm.engine.objects import LeaseSpec, ObjectMeta

MIRROR = "kubernetes.io/config.mirror"
#: Words in the names of images and programs of cloud-controller-managers.
_CLOUD = re.compile(r"cloud-controller|cloud-provider|(^|-)ccm($|-)")


class ManagedFields(Struct, frozen=True, rename="camel"):
    """Which program wrote which fields. `fields_v1`: the fields in the API server's form, "f:spec" and so on."""

    manager: str = ""
    time: str | None = None
    fields_v1: dict[str, Any] = field(default_factory=dict, name="fieldsV1")


class WrittenMeta(Struct, frozen=True, rename="camel"):
    name: str = ""
    managed_fields: list[ManagedFields] = []


class Versions(Struct, frozen=True, rename="camel"):
    kubelet_version: str = ""


class WrittenStatus(Struct, frozen=True, rename="camel"):
    node_info: Versions = Versions()


class WrittenNode(Struct, frozen=True):
    """A Node: who wrote it, and its kubelet's version."""

    metadata: WrittenMeta = WrittenMeta()
    status: WrittenStatus = WrittenStatus()


class Container(Struct, frozen=True):
    name: str = ""
    image: str = ""
    command: list[str] = []
    args: list[str] = []

    @property
    def arguments(self) -> list[str]:
        return [*self.command, *self.args]

    @property
    def image_name(self) -> str:
        """The image without registry, path, tag and digest."""
        return PurePosixPath(self.image.partition("@")[0]).name.partition(":")[0]

    def flag(self, name: str) -> str | None:
        """Return the last value of a flag; "true" for a flag without a value; None if it is not set."""
        value = None
        for position, text in enumerate(self.arguments):
            if text.startswith(f"--{name}="):
                value = text.partition("=")[2]
            elif text == f"--{name}":
                following = self.arguments[position + 1 : position + 2]
                value = following[0] if following and not following[0].startswith("-") else "true"
        return value

    @property
    def is_ours(self) -> bool:
        """Whether it is this project's controller."""
        return self.image_name.startswith("outoftree-ccm") and "simcloud" not in self.image_name

    @property
    def is_cloud_controller(self) -> bool:
        """Whether it looks like a cloud-controller-manager."""
        program = PurePosixPath(self.arguments[0]).name if self.arguments else ""
        return self.is_ours or any(_CLOUD.search(text) for text in (self.image_name, program))


class PodSpec(Struct, frozen=True, rename="camel"):
    containers: list[Container] = []
    service_account_name: str = ""
    node_name: str = ""


class PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    pod_ip: str = field(default="", name="podIP")


class Pod(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_static(self) -> bool:
        return MIRROR in self.metadata.annotations


class Template(Struct, frozen=True):
    spec: PodSpec = PodSpec()


class WorkloadSpec(Struct, frozen=True):
    template: Template = Template()


class Workload(Struct, frozen=True):
    """A DaemonSet or Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class NodeLease(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(Struct, frozen=True):
    data: dict[str, str] = {}


class RequestSpec(Struct, frozen=True, rename="camel"):
    signer_name: str = ""
    username: str = ""


class RequestStatus(Struct, frozen=True):
    conditions: list[dict[str, Any]] = []
    certificate: str = ""


class SigningRequest(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RequestSpec = RequestSpec()
    status: RequestStatus = RequestStatus()


class ServerVersion(Struct, frozen=True, rename="camel"):
    git_version: str = ""


def cloud_controllers(containers: Iterable[Container]) -> Iterator[Container]:
    """Return the containers that look like cloud-controller-managers."""
    return (each for each in containers if each.is_cloud_controller)


def minor(version: str) -> tuple[int, int] | None:
    """Return (1, 33) for "v1.33.4"; None for text of another form."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None
