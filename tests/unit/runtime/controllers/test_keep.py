# SPDX-License-Identifier: Apache-2.0
"""What a deleted Service leaves in the cloud, and load balancers that are protected against deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ccm.cloud import (
    Backend,
    Kept,
    KeptLoadBalancer,
    LoadBalancer,
    LoadBalancerSpec,
    Transient,
)
from ccm.controllers.services.keep_rules import KEEP, PROTECT, TAKE_BACK, misspelled

from ..gateway.virtual import in_virtual_time
from .services_harness import FINALIZER, Balancers, Cluster, until


class Keeping(Balancers):
    """Load balancers that can outlive their Service. `left`: UID of the former Service -> what stays.

    `made` stores what each Service asked for in its last `ensure`, because an orphan's deletion knows only the UID.
    """

    def __init__(self, *keeps: Kept) -> None:
        super().__init__()
        self.keeps = frozenset(keeps)
        self.left: dict[str, Kept] = {}

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        return super().fingerprint(spec, backends) + repr((spec.keep, spec.protected, spec.take_back))

    def _answer(self, uid: str) -> LoadBalancer:
        row = self.made[uid]
        return replace(
            super()._answer(uid),
            keep=row.get("keep"),
            protected=row.get("protected", False),
        )

    def _write(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        super()._write(spec, backends)
        self.made[spec.uid] |= {"keep": spec.keep, "protected": spec.protected}
        return self._answer(spec.uid)

    async def kept(self, cluster: str) -> Sequence[KeptLoadBalancer]:
        return [KeptLoadBalancer(uid, "shop") for uid in self.left]

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        row = self.made.get(spec.uid, {})
        marks = {"keep": row.get("keep"), "protected": row.get("protected", False)}
        return await super().update_backends(replace(spec, **marks), backends)

    async def delete(self, spec: LoadBalancerSpec) -> None:
        mark = self.made.get(spec.uid, {}).get("keep")
        await super().delete(spec)
        if (keep := spec.keep or mark) is not None:
            self.left[spec.uid] = keep


def cluster(*keeps: Kept) -> tuple[Cluster, Keeping]:
    made = Cluster()
    made.cloud = cloud = Keeping(*keeps)
    return made, cloud


def annotate(c: Cluster, **annotations: str | None) -> None:
    keys = {"keep": KEEP, "protect": PROTECT, "take_back": TAKE_BACK}
    c.api.change(
        "services",
        "shop/web",
        {"metadata": {"annotations": {keys[k]: v for k, v in annotations.items()}}},
    )


def waiting(c: Cluster) -> list[tuple[str, str]]:
    conditions = c.api.service().get("status", {}).get("conditions", [])
    return [(each["reason"], each["message"]) for each in conditions if each["type"] == "LoadBalancerWaiting"]


def leave(c: Cluster, how: str) -> None:
    if how == "deleted":
        c.api.delete_service("web")
    else:
        c.api.change("services", "shop/web", {"spec": {"type": "ClusterIP"}})


def is_gone(c: Cluster) -> bool:
    service = c.api.objects["services"].get("shop/web")
    return service is None or FINALIZER not in (service["metadata"].get("finalizers") or ())


@pytest.mark.parametrize("how", ["deleted", "another type"])
@in_virtual_time
async def test_a_protected_load_balancer_is_deleted_when_the_annotation_goes(
    how: str,
) -> None:
    c, cloud = cluster()  # works without support by the cloud
    async with c:
        await c.begin()
        annotate(c, protect="true")
        leave(c, how)
        await asyncio.sleep(1000)
        assert cloud.count("delete") == 0 and FINALIZER in c.api.service()["metadata"]["finalizers"]
        (message,) = c.api.told("LoadBalancerProtected")
        assert PROTECT in message
        ((reason, text),) = waiting(c)
        assert reason == "LoadBalancerProtected" and PROTECT in text
        annotate(c, protect=None)
        await until(lambda: is_gone(c), 60)
        assert not cloud.made and cloud.count("delete") == 1


@pytest.mark.parametrize("restarted", [False, True])
@in_virtual_time
async def test_a_protected_load_balancer_follows_the_nodes_while_its_service_waits_for_its_end(
    restarted: bool,
) -> None:
    c, cloud = cluster()
    async with c:
        await c.begin()
        annotate(c, protect="true")
        c.api.delete_service("web")
        await asyncio.sleep(10)
        if restarted:
            await c.stop()
            c.add_node("new")
            c.serve()
        else:
            c.add_node("new")
        await until(lambda: "new" in cloud.hosts(), 60)
        cloud.fault = lambda verb, spec: Transient("later") if verb == "update" else None
        c.add_node("late")
        await asyncio.sleep(10)
        cloud.fault = lambda verb, spec: None
        await until(lambda: "late" in cloud.hosts(), 60)
        assert cloud.count("delete") == 0


@in_virtual_time
async def test_a_service_that_is_protected_for_the_second_time_is_told_again() -> None:
    c, cloud = cluster()
    async with c:
        await c.begin()
        annotate(c, protect="true")
        for times in (1, 2):
            leave(c, "another type")
            await until(lambda: waiting(c), 60)
            await asyncio.sleep(10)
            assert len(c.api.told("LoadBalancerProtected")) == 1
            repeats = [each["count"] for each in c.api.repeated if PROTECT in each["message"]]
            assert repeats == [2][: times - 1]
            c.api.change("services", "shop/web", {"spec": {"type": "LoadBalancer"}})
            await until(lambda: not waiting(c), 60)
        assert cloud.count("delete") == 0


@in_virtual_time
async def test_a_new_service_of_the_same_name_gets_another_load_balancer() -> None:
    c, cloud = cluster(Kept.LOAD_BALANCER)
    async with c:
        await c.begin()
        annotate(c, keep="load-balancer", protect="true")
        await until(lambda: cloud.made["uid-of-web"].get("protected"), 60)
        c.api.remove("services", "shop/web")  # as if somebody had removed the finalizer by hand
        c.add_service("web", uid="uid-of-another")
        await until(lambda: "uid-of-another" in cloud.made, 60)
        await asyncio.sleep(2000)
        assert set(cloud.made) == {"uid-of-web", "uid-of-another"} and cloud.count("delete") == 0


@in_virtual_time
async def test_a_new_leader_protects_it_too() -> None:
    c, cloud = cluster()
    async with c:
        await c.begin()
        annotate(c, protect="true")
        c.api.delete_service("web")
        await asyncio.sleep(10)
        await c.stop()
        c.serve()
        await asyncio.sleep(1000)
        assert cloud.count("delete") == 0


@pytest.mark.parametrize("keep", list(Kept))
@pytest.mark.parametrize("how", ["deleted", "another type"])
@in_virtual_time
async def test_what_is_kept_is_told_with_the_way_back(how: str, keep: Kept) -> None:
    c, cloud = cluster(*Kept)
    async with c:
        await c.begin()
        address = c.api.ingress()[0]["ip"]
        annotate(c, keep=str(keep))
        await until(lambda: cloud.made["uid-of-web"].get("keep") == keep, 60)
        leave(c, how)
        await until(lambda: is_gone(c), 60)
        await asyncio.sleep(10)
        assert cloud.left == {"uid-of-web": keep}
        if keep is Kept.ADDRESS:
            assert address in c.api.told("DeletedLoadBalancer")[0]
        else:
            assert f"{TAKE_BACK}: web" in c.api.told("KeptLoadBalancer")[0]
            assert not c.api.told("DeletedLoadBalancer")


@in_virtual_time
async def test_an_annotation_that_went_again_keeps_nothing() -> None:
    c, cloud = cluster(*Kept)
    async with c:
        await c.begin()
        annotate(c, keep="load-balancer")
        await until(lambda: cloud.made["uid-of-web"].get("keep"), 60)
        annotate(c, keep=None)
        await until(lambda: not cloud.made["uid-of-web"].get("keep"), 60)
        c.api.delete_service("web")
        await until(lambda: is_gone(c), 60)
        assert not cloud.left and not cloud.made


@pytest.mark.parametrize(
    ("keeps", "annotation", "message"),
    [
        ((), {"keep": "load-balancer"}, "it can keep nothing"),
        ((Kept.ADDRESS,), {"keep": "load-balancer"}, "it can keep only address"),
        ((Kept.LOAD_BALANCER,), {"keep": "address"}, "it can keep only load-balancer"),
        (
            tuple(Kept),
            {"keep": "true"},
            "'true' is not one of address or load-balancer",
        ),
        (tuple(Kept), {"keep": ""}, "is not one of"),
        (tuple(Kept), {"protect": "yes"}, "'yes' is not true or false"),
        (tuple(Kept), {"take_back": ""}, "is not the name of a load balancer"),
        ((Kept.ADDRESS,), {"take_back": "old"}, "spec.loadBalancerIP"),
    ],
)
@in_virtual_time
async def test_what_the_cloud_cannot_do_is_refused_before_anything_is_made(
    keeps: tuple[Kept, ...], annotation: dict[str, Any], message: str
) -> None:
    c, cloud = cluster(*keeps)
    async with c:
        c.add_node("n0")
        c.add_service()
        annotate(c, **annotation)
        c.serve()
        await until(lambda: c.api.told("SyncLoadBalancerFailed"), 60)
        assert message in c.api.told("SyncLoadBalancerFailed")[0]
        assert not cloud.made and cloud.count("ensure") == 0
        c.api.delete_service("web")  # nothing was created, so nothing delays the deletion
        await asyncio.sleep(10)
        assert "shop/web" not in c.api.objects["services"]


@pytest.mark.parametrize("annotation", [{"keep": "address"}, {"keep": "yes"}, {"protect": "yes"}])
@in_virtual_time
async def test_what_cannot_be_read_deletes_nothing_until_it_is_corrected(
    annotation: dict[str, Any],
) -> None:
    c, cloud = cluster(Kept.LOAD_BALANCER)
    async with c:
        await c.begin()
        annotate(c, **annotation)
        c.api.delete_service("web")
        await asyncio.sleep(1000)
        assert cloud.count("delete") == 0 and len(c.api.told("LoadBalancerProtected")) == 1
        annotate(c, **dict.fromkeys(annotation))
        await until(lambda: is_gone(c), 60)
        assert not cloud.made


@pytest.mark.parametrize(
    ("annotation", "stays"),
    [({"protect": "true"}, True), ({"keep": "load-balancer"}, False)],
)
@in_virtual_time
async def test_a_service_whose_finalizer_was_removed_by_hand_is_respected(
    annotation: dict[str, Any], stays: bool
) -> None:
    c, cloud = cluster(*Kept)
    async with c:
        await c.begin()
        annotate(c, **annotation)
        await asyncio.sleep(10)
        c.api.remove("services", "shop/web")
        await asyncio.sleep(2000)
        assert ("uid-of-web" in cloud.made) is stays
        assert bool(c.api.told("LoadBalancerProtected")) is stays
        assert bool(c.api.told("KeptLoadBalancer")) is not stays and not c.api.told("DeletedLoadBalancer")
        assert cloud.left == ({} if stays else {"uid-of-web": Kept.LOAD_BALANCER})


@pytest.mark.parametrize(
    ("annotation", "stays"),
    [({"protect": "true"}, True), ({"keep": "load-balancer"}, False)],
)
@in_virtual_time
async def test_the_audit_goes_by_the_mark(annotation: dict[str, Any], stays: bool, caplog: Any) -> None:
    c, cloud = cluster(*Kept)
    async with c:
        await c.begin()
        annotate(c, **annotation)
        await asyncio.sleep(10)
        await c.stop()
        c.api.remove("services", "shop/web")
        c.add_service("other", port=2)
        c.serve(delete_orphans=True)
        await c.served("other")
        await asyncio.sleep(2000)
        assert ("uid-of-web" in cloud.made) is stays and cloud.count("delete") == (0 if stays else 1)
        assert cloud.left == ({} if stays else {"uid-of-web": Kept.LOAD_BALANCER})
        assert ("protected it against deletion" in caplog.text) is stays


@in_virtual_time
async def test_protected_orphans_keep_no_other_one_in_the_cloud() -> None:
    """Protected orphans stay for good, so the audit does not count them when it doubts a large number of orphans."""
    c, cloud = cluster(*Kept)
    async with c:
        row = {"ip": "192.0.2.250", "fingerprint": "", "ready_at": 0.0}
        for number in range(5):
            cloud.made[f"uid-of-old-{number}"] = {"name": f"old-{number}", **row, "protected": number > 1}
        c.add_service()
        c.serve(delete_orphans=True)
        await c.served()
        await asyncio.sleep(2000)
        assert set(cloud.made) == {"uid-of-web", "uid-of-old-2", "uid-of-old-3", "uid-of-old-4"}
        cloud.made |= {f"uid-of-new-{number}": {"name": f"new-{number}", **row} for number in range(3)}
        await asyncio.sleep(2000)
        assert len(cloud.made) == 7, "three of four that are not protected are as implausible as before"
        cloud.made = {"uid-of-web": cloud.made["uid-of-web"]}
        await asyncio.sleep(700)  # an audit resets the metric, which outlives the test


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({KEEP: "address", PROTECT: "true", TAKE_BACK: "web", "ccm.outoftree.dev/check-load-balancer": "1"}, []),
        ({"example.com/keep-on-deletion": "address"}, []),
        ({"ccm.outoftree.dev/keep-on-deletoin": "address"}, [f"keep-on-deletoin has no effect; did you mean {KEEP}?"]),
        ({"ccm.outoftree.dev/protect": "true"}, [f"protect has no effect; known are {KEEP}, {PROTECT}"]),
        ({f"ccm.outoftree.dev/{number}": "" for number in range(9)}, [f"/{number} has" for number in range(5)]),
    ],
)
def test_what_a_misspelled_annotation_is_told(annotations: dict[str, str], expected: list[str]) -> None:
    found = misspelled(annotations)
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True)), found


@in_virtual_time
async def test_a_misspelled_annotation_is_reported_once_although_nothing_is_written() -> None:
    async with Cluster() as c:
        c.cloud = Keeping(Kept.LOAD_BALANCER)
        c.add_service()
        c.serve()
        await c.served()
        wrong = {"ccm.outoftree.dev/keep-on-deletions": "load-balancer"}
        c.api.change("services", "shop/web", {"metadata": {"annotations": wrong}})
        await until(lambda: c.api.told("LoadBalancerWarning"))
        c.api.change("services", "shop/web", {"metadata": {"annotations": {"x": "y"}}})
        await asyncio.sleep(60)
        (message,) = c.api.told("LoadBalancerWarning")
        assert f"did you mean {KEEP}?" in message
