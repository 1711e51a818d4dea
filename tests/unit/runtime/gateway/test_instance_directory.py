# SPDX-License-Identifier: Apache-2.0
"""Many lookups cost few calls, and an instance counts as gone only on proof."""

import asyncio
import gc
import itertools

import pytest

from ccm.base import log_context
from ccm.cloud import (
    Address,
    AddressType,
    CloudError,
    Conflict,
    Instance,
    InstanceRef,
    Limits,
    NotFound,
    Page,
    RateLimited,
    Transient,
)
from ccm.gateway import instance_snapshot
from ccm.gateway.gateway import Gateway, ProviderBug
from ccm.gateway.instance_directory import REMEMBERED_GONE
from ccm.gateway.instance_snapshot import Snapshot

from .fake import FakeCloud, FakeInstances, machine
from .virtual import in_virtual_time, now

MACHINES = [machine(f"n{i}") for i in range(300)]


def directory(fake, limits=None):
    return Gateway(FakeCloud(fake, limits), clock=now).instances


def by_id(name):
    return InstanceRef(name, f"fake://{name}")


def by_name(name):
    return InstanceRef(name)


async def ask(directory, *refs, not_before=None):
    """Look up all references at once. Returns answers and errors in order."""
    moment = now() if not_before is None else not_before
    return await asyncio.gather(*(directory.lookup(ref, not_before=moment) for ref in refs), return_exceptions=True)


def kinds(answers):
    """Return the contract's type of each answer. A provider's bug counts as Transient."""
    return [Transient if isinstance(answer, ProviderBug) else type(answer) for answer in answers]


# --- one listing for many -------------------------------------------------------------------------------------------


@in_virtual_time
async def test_many_questions_one_listing():
    fake = FakeInstances(*MACHINES)
    answers = await ask(directory(fake), *(by_id(m.name) for m in MACHINES[:150]), *(by_name(m.name) for m in MACHINES))
    assert answers == [*MACHINES[:150], *MACHINES]
    assert fake.calls == [(1000.1, "list")]


@in_virtual_time
async def test_a_listing_for_many_is_a_part_of_the_work_that_asked_first():
    """The listing's spans and log fields are those of the first caller that needed it, as docs/how-to/monitoring.md
    says about traces.
    """
    seen = []

    class Listing(FakeInstances):
        async def list_page(self, token):
            seen.append(log_context.fields()["object"])
            return await super().list_page(token)

    found = directory(Listing(*MACHINES))

    async def work(name):
        with log_context.about(object=name):
            return await ask(found, by_id(name))

    assert await asyncio.gather(work("n1"), work("n2"), work("n3")) == [[MACHINES[1]], [MACHINES[2]], [MACHINES[3]]]
    assert seen == ["n1"]


@in_virtual_time
async def test_one_question_is_one_single_read():
    fake = FakeInstances(*MACHINES)
    assert await ask(directory(fake), by_id("n7")) == [MACHINES[7]]
    assert fake.calls == [(1000.1, "get n7")]


@in_virtual_time
async def test_the_same_question_twice_is_one():
    fake = FakeInstances(*MACHINES)
    assert await ask(directory(fake), by_id("n7"), by_id("n7"), by_id("n7")) == [MACHINES[7]] * 3
    assert fake.calls == [(1000.1, "get n7")]


@in_virtual_time
async def test_single_reads_where_a_listing_has_more_pages():
    fake = FakeInstances(*MACHINES)
    for page in range(4):
        part = MACHINES[page * 75 : page * 75 + 75]
        fake.pages[f"p{page}" if page else None] = Page(part, next=f"p{page + 1}" if page < 3 else None)
    found = directory(fake)
    assert await ask(found, *(by_id(m.name) for m in MACHINES)) == MACHINES
    assert [what for _, what in fake.calls] == ["list", "list p1", "list p2", "list p3"]
    fake.calls.clear()
    await asyncio.sleep(10.0)
    assert await ask(found, by_id("n1"), by_id("n2"), by_id("n3")) == MACHINES[1:4]
    assert [what for _, what in fake.calls] == ["get n1", "get n2", "get n3"]
    fake.calls.clear()
    assert await ask(found, *map(by_id, ("n1", "n2", "n3", "n4"))) == MACHINES[1:5]
    assert fake.count("get") == 0
    assert fake.count("list") == 4


@in_virtual_time
async def test_three_hundred_staggered_questions_cost_three_listings_at_most():
    fake = FakeInstances(*MACHINES, latency=0.2)
    found = directory(fake)

    async def later(index):
        await asyncio.sleep(0.003 * index)
        found.expect()
        return await found.lookup(by_name(f"n{index}"), not_before=now())

    assert await asyncio.gather(*map(later, range(300))) == MACHINES
    assert fake.count("list") <= 3
    assert fake.count("get") == 0
    assert now() < 1002.5


@in_virtual_time
async def test_a_long_trickle_costs_a_listing_a_second():
    fake = FakeInstances(*MACHINES, latency=0.01)
    found = directory(fake)

    async def later(index):
        await asyncio.sleep(0.05 * index)
        return await found.lookup(by_name(f"n{index}"), not_before=now())

    assert await asyncio.gather(*map(later, range(200))) == MACHINES[:200]
    assert fake.count("list") <= 11
    begins = [at for at, what in fake.calls if what == "list"]
    assert all(later - earlier >= 0.999 for earlier, later in itertools.pairwise(begins))


@in_virtual_time
async def test_nobody_waits_longer_than_a_second_for_company():
    fake = FakeInstances(*MACHINES)
    found = directory(fake)
    first = asyncio.create_task(found.lookup(by_name("n0"), not_before=now()))
    for index in range(1, 40):
        await asyncio.sleep(0.05)
        task = asyncio.create_task(found.lookup(by_name(f"n{index}"), not_before=now()))
        if first.done():
            break
    assert fake.calls[0] == (pytest.approx(1001.0), "list")
    await asyncio.gather(first, task)


@in_virtual_time
async def test_expected_questions_are_waited_for():
    fake = FakeInstances(*MACHINES)
    found = directory(fake)
    first = asyncio.create_task(found.lookup(by_name("n0"), not_before=now()))
    for _ in range(4):
        await asyncio.sleep(0.09)
        found.expect()
    second = asyncio.create_task(found.lookup(by_name("n1"), not_before=now()))
    assert await asyncio.gather(first, second) == MACHINES[:2]
    assert fake.calls == [(pytest.approx(1000.46), "list")]


# --- freshness ------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_snapshot_answers_what_it_is_fresh_enough_for():
    fake = FakeInstances(*MACHINES)
    found = directory(fake)
    await ask(found, by_id("n1"), by_id("n2"))
    began = fake.calls[0][0]
    assert await ask(found, by_id("n3"), by_name("n4"), not_before=began) == MACHINES[3:5]
    assert kinds(await ask(found, by_id("x"), by_name("x"), not_before=began)) == [NotFound, NotFound]
    assert len(fake.calls) == 1
    await ask(found, by_id("n3"), by_id("n4"), not_before=began + 0.001)
    assert fake.count("list") == 2


@in_virtual_time
async def test_a_listing_that_began_before_the_question_does_not_answer_it():
    fake = FakeInstances(*MACHINES, latency=1.0)
    found = directory(fake)
    early = asyncio.create_task(ask(found, by_id("n1"), by_id("n2")))
    await asyncio.sleep(0.5)  # the running listing will miss machines created from now on
    late_machine = machine("late")
    fake.pages[None] = Page([*MACHINES, late_machine])
    late = await ask(found, by_name("late"), by_id("n2"))
    assert late == [late_machine, MACHINES[2]]
    assert await early == MACHINES[1:3]
    assert fake.count("list") == 2


@in_virtual_time
async def test_late_comers_are_answered_by_a_listing_that_is_fresh_enough_for_them():
    fake = FakeInstances(*MACHINES, latency=0.05)
    found = directory(fake)
    early = asyncio.create_task(ask(found, by_id("n1"), by_id("n2")))
    await asyncio.sleep(0.12)  # the listing began at 1000.1
    *known, gone = await ask(found, by_id("n3"), by_id("n4"), by_id("gone"), not_before=1000.1)
    assert known == MACHINES[3:5]
    assert isinstance(gone, NotFound)
    await early
    assert fake.calls == [(1000.1, "list")]


@in_virtual_time
async def test_a_pass_over_all_nodes_lists_once_and_shares():
    fake = FakeInstances(*MACHINES)
    found = directory(fake)
    snapshot = await found.list(not_before=now())
    assert (len(snapshot.by_id), snapshot.pages, snapshot.began) == (300, 1, 1000.0)
    assert await found.list(not_before=1000.0) is snapshot
    assert await ask(found, by_id("n3"), not_before=1000.0) == [MACHINES[3]]
    assert fake.count("list") == 1
    await asyncio.sleep(1.0)
    assert (await found.list(not_before=now())).began == 1001.0


@in_virtual_time
async def test_an_older_listing_that_ends_later_does_not_replace_a_newer_one():
    fake = FakeInstances(*MACHINES, latency=5.0)
    found = directory(fake)
    old = asyncio.create_task(found.list(not_before=1000.0))
    await asyncio.sleep(1.0)
    fake.latency = 0.0
    await found.list(not_before=1001.0)
    await old
    assert await ask(found, by_id("n3"), not_before=1001.0) == [MACHINES[3]]
    assert [what for _, what in fake.calls] == ["list", "list"]


# --- failures are unknown, never gone -------------------------------------------------------------------------------


@in_virtual_time
async def test_a_failed_listing_reaches_everybody_and_the_next_question_asks_anew():
    fake = FakeInstances(*MACHINES)
    fake.pages[None] = ConnectionResetError("reset")
    found = directory(fake)
    answers = await ask(found, *(by_id(f"n{i}") for i in range(5)), by_id("gone"))
    assert kinds(answers) == [Transient] * 6
    assert "reset" in str(answers[0])
    fake.pages[None] = Page(MACHINES)
    assert await ask(found, by_id("n1"), by_id("n2")) == MACHINES[1:3]
    assert fake.count("list") == 2


@in_virtual_time
async def test_a_failed_page_after_a_good_one_is_a_failed_listing():
    fake = FakeInstances()
    fake.pages = {None: Page(MACHINES[:2], next="p1"), "p1": Transient("503")}
    found = directory(fake)
    assert kinds(await ask(found, by_id("n0"), by_id("n1"), by_id("n2"))) == [Transient] * 3
    with pytest.raises(Transient):
        await found.list(not_before=now())


@in_virtual_time
async def test_a_failed_listing_leaves_an_older_snapshot_as_it_is():
    fake = FakeInstances(*MACHINES)
    found = directory(fake)
    await found.list(not_before=1000.0)
    fake.pages[None] = Transient("503")
    await asyncio.sleep(5.0)
    assert kinds(await ask(found, by_id("n0"), by_id("gone"))) == [Transient] * 2
    assert await ask(found, by_id("n0"), not_before=1000.0) == [MACHINES[0]]


@in_virtual_time
async def test_an_empty_listing_is_not_believed():
    found = directory(FakeInstances())
    answers = await ask(found, by_id("n0"), by_name("n1"))
    assert kinds(answers) == [Transient] * 2
    assert "lists no instances at all" in str(answers[0])


@in_virtual_time
@pytest.mark.parametrize(
    ("pages", "complete"),
    [
        ({None: Page(MACHINES[:2], total=3)}, False),
        ({None: Page(MACHINES[:2], total=2)}, True),
        ({None: Page(MACHINES[:2], next="p", total=4), "p": Page(MACHINES[2:3])}, False),
        ({None: Page(MACHINES[:2], next="p", total=3), "p": Page(MACHINES[2:3])}, True),
        ({None: Page(MACHINES[:2], next="p", total=3), "p": Page(MACHINES[1:2])}, False),  # the same instance twice
        ({None: Page(MACHINES[:2], next="p", total=4), "p": Page(MACHINES[2:3], total=3)}, True),  # one was deleted
    ],
)
async def test_a_listing_shorter_than_the_cloud_says_is_incomplete(pages, complete):
    fake = FakeInstances()
    fake.pages = pages
    answers = await ask(directory(fake), by_id("n0"), by_id("gone"))
    assert kinds(answers) == ([Instance, NotFound] if complete else [Transient] * 2)
    if not complete:
        assert "incomplete listing" in str(answers[0])


@in_virtual_time
@pytest.mark.parametrize(
    "pages",
    [
        {None: Page(MACHINES[:2], next="p"), "p": Page(MACHINES[2:4], next="p")},
        {None: Page(MACHINES[:2], next="p"), "p": Page(MACHINES[2:4], next="q"), "q": Page(MACHINES[4:6], next="p")},
    ],
)
async def test_pages_that_go_round_are_an_error(pages):
    fake = FakeInstances()
    fake.pages = pages
    answers = await ask(directory(fake), by_id("n0"), by_id("gone"))
    assert kinds(answers) == [Transient] * 2
    assert "returned the next page 'p' twice" in str(answers[0])
    assert fake.count("list") == len(pages)


@in_virtual_time
async def test_an_instance_on_two_pages_is_one():
    fake = FakeInstances()
    fake.pages = {None: Page(MACHINES[:2], next="p"), "p": Page(MACHINES[1:3])}
    assert await ask(directory(fake), by_name("n1"), by_name("n2")) == MACHINES[1:3]


@in_virtual_time
@pytest.mark.parametrize("wrong", ["not a page", None, Page(MACHINES[:2], next=["p"]), Page(MACHINES[:2], total="2")])
async def test_a_provider_whose_page_is_nonsense(wrong):
    fake = FakeInstances(*MACHINES)
    fake.pages[None] = wrong
    answers = await ask(directory(fake), by_id("n0"), by_id("gone"))
    assert kinds(answers) == [Transient] * 2
    assert "provider 'fake' raised TypeError" in str(answers[0])


@in_virtual_time
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (None, "expected Instance, got NoneType"),
        ("n3", "expected Instance, got str"),
        (Instance(["fake://n3"], "n3"), "provider_id=['fake://n3']"),
        (Instance("fake://n3", None), "name=None"),
        (Instance("fake://n3", "n3", zone=3), "zone=3"),
        (Instance("fake://n3", "n3", addresses=None), "addresses=None"),
        (Instance("fake://n3", "n3", addresses=("10.0.0.1",)), "addresses=('10.0.0.1',)"),
        (Instance("fake://n3", "n3", addresses=(Address(AddressType.INTERNAL_IP, ""),)), "address=''"),
        (Instance("fake://n3", "n3", labels={"a": None}), "labels={'a': None}"),
        (Instance("fake://n3", "n3", state="stopped"), "state='stopped'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_entry_that_is_no_instance_leaves_the_others_but_nothing_can_be_said_to_be_gone(entry, message):
    """W10: if the entry were dropped silently, its Node would look as if its instance were gone."""
    fake = FakeInstances(*MACHINES)
    fake.pages[None] = Page([*MACHINES[:2], entry])
    found, lost = await ask(directory(fake), by_id("n0"), by_id("n3"))
    assert found == MACHINES[0]
    assert isinstance(lost, Transient) and message in str(lost)


@in_virtual_time
async def test_a_provider_id_in_another_spelling_is_neither_the_same_nor_gone():
    fake = FakeInstances(*MACHINES)
    [answer] = [a for a in await ask(directory(fake), InstanceRef("n0", "fake://N0"), by_id("n1")) if a != MACHINES[1]]
    assert isinstance(answer, Conflict)
    assert "fake://N0" in str(answer) and "fake://n0" in str(answer)


@in_virtual_time
async def test_a_provider_that_fails_to_tell_what_is_its_own_owns_nothing():
    fake = FakeInstances(*MACHINES)
    fake.owns = lambda provider_id: 1 / 0
    assert directory(fake).owns("fake://n0") is False


@in_virtual_time
async def test_a_provider_that_forgets_to_return_an_instance_n7():
    """Upstream tolerates "no metadata, no error" when it initialises, and crashes on it when it refreshes (W10)."""
    fake = FakeInstances(*MACHINES)
    fake.single["n0"] = None
    [answer] = await ask(directory(fake), by_id("n0"))
    assert isinstance(answer, Transient)
    assert "expected Instance, got NoneType" in str(answer)


@in_virtual_time
@pytest.mark.parametrize("error", [NotFound("gone"), Conflict("two"), Transient("503"), RateLimited("429")])
async def test_a_single_read_passes_the_clouds_answer_on(error):
    fake = FakeInstances()
    fake.single["n0"] = error
    assert await ask(directory(fake), by_id("n0")) == [error]


@in_virtual_time
async def test_a_single_read_that_fails_does_not_fail_the_others():
    fake = FakeInstances()
    for page in range(4):
        fake.pages[f"p{page}" if page else None] = Page(MACHINES[page : page + 1], f"p{page + 1}" if page < 3 else None)
    fake.single = {"n1": MACHINES[1], "n2": ValueError("bug")}
    found = directory(fake)
    await found.list(not_before=now())
    answers = await ask(found, by_id("n1"), by_id("n2"), by_id("n9"), not_before=now() + 1)
    assert kinds(answers) == [Instance, Transient, NotFound]


@in_virtual_time
async def test_deadline_of_a_listing():
    found = directory(FakeInstances(*MACHINES, latency=9.0), Limits(deadline=3.0))
    answers = await ask(found, by_id("n0"), by_id("gone"))
    assert kinds(answers) == [Transient] * 2
    assert now() == pytest.approx(1003.1)


@in_virtual_time
async def test_names_that_are_not_unique():
    fake = FakeInstances(machine("n0", "fake://1"), machine("n0", "fake://2"), machine("N0", "fake://3"))
    answers = await ask(directory(fake), by_name("n0"), InstanceRef("n0", "fake://2"), by_name("N0"), by_name("n1"))
    assert kinds(answers) == [Conflict, Instance, Instance, NotFound]
    assert str(answers[0]) == ("2 instances are named 'n0' (fake://1, fake://2): give the Node a providerID or rename")
    assert (answers[1].provider_id, answers[2].provider_id) == ("fake://2", "fake://3")


def test_a_provider_id_is_never_looked_up_by_name():
    snapshot = Snapshot.of([machine("n0", "fake://new")], 0.0, 1)
    with pytest.raises(NotFound, match="lists no instance fake://old"):
        snapshot.find(InstanceRef("n0", "fake://old"))


@in_virtual_time
async def test_owns_needs_a_provider_id_whatever_the_provider_says():
    found = directory(FakeInstances())
    assert (found.owns("fake://1"), found.owns("other://1"), found.owns("")) == (True, False, False)


# --- cancellation ---------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("moment", [0.05, 0.5])  # while lookups are gathered; during the read
@pytest.mark.parametrize("others", ["n1", "n0"])  # another instance; the same one
async def test_cancelling_one_asker_does_not_cancel_others(moment, others):
    fake = FakeInstances(*MACHINES, latency=1.0)
    found = directory(fake)
    one = asyncio.create_task(found.lookup(by_id("n0"), not_before=now()))
    other = asyncio.create_task(found.lookup(by_id(others), not_before=now()))
    await asyncio.sleep(moment)
    one.cancel()
    assert await other == MACHINES[int(others[1:])]
    assert one.cancelled()
    assert len(fake.calls) == 1


@in_virtual_time
async def test_when_all_askers_are_cancelled_no_error_is_left_over():
    fake = FakeInstances()
    fake.single["n0"] = Transient("503")
    found, complaints = directory(fake), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    one = asyncio.create_task(found.lookup(by_id("n0"), not_before=now()))
    await asyncio.sleep(0.05)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await asyncio.sleep(10.0)
    fake.single.clear()  # drop the remaining references to the unread answer
    del one
    gc.collect()
    assert fake.count("get") == 1
    assert complaints == []


@in_virtual_time
async def test_close_ends_reads_and_whoever_waits_for_them():
    fake = FakeInstances(*MACHINES, latency=20.0)
    found = directory(fake)
    asker = asyncio.create_task(found.lookup(by_id("n0"), not_before=now()))
    await asyncio.sleep(1.0)
    await found.close()
    with pytest.raises((asyncio.CancelledError, CloudError)):
        await asker
    assert now() == 1001.0
    await found.close()


# --- older spellings of providerIDs ---------------------------------------------------------------------------------


class Respelt(FakeInstances):
    """`old://x` is an older spelling of `fake://x`. For `old://?` no current spelling is known."""

    def owns(self, provider_id):
        return provider_id.startswith(("fake://", "old://"))

    def canonical(self, provider_id):
        if provider_id == "old://bug":
            raise KeyError("bug")
        return None if provider_id == "old://?" else provider_id.replace("old://", "fake://")


def old(name):
    return InstanceRef("some-node", f"old://{name}")


@in_virtual_time
@pytest.mark.parametrize("many", [pytest.param(False, id="single-read"), pytest.param(True, id="listing")])
async def test_an_older_spelling_is_found_and_answered_as_the_node_spells_it(many):
    fake = Respelt(*MACHINES)
    fake.single["some-node"] = MACHINES[7]
    asked = []
    get = fake.get

    async def seen(ref):
        asked.append(ref.provider_id)
        return await get(ref)

    fake.get = seen
    refs = [old("n7"), *(by_id(f"n{number}") for number in range(20) if many)]
    answers = await ask(directory(fake), *refs)
    assert answers[0] == Instance("old://n7", "n7")
    assert asked == ([] if many else ["fake://n7"])


@in_virtual_time
@pytest.mark.parametrize("others", [0, 20])
async def test_a_spelling_that_a_listing_explains_is_found_by_one(others):
    class Learning(Respelt):
        def canonical(self, provider_id):
            return super().canonical(provider_id) if self.count("list") else None

    found = directory(Learning(*MACHINES))
    assert found.known("old://n7") is None and found.same_as("old://n7") == "old://n7"
    answers = await ask(found, old("n7"), *(by_id(f"n{number}") for number in range(others)))
    assert answers[0] == Instance("old://n7", "n7")
    assert found.same_as("old://n7") == "fake://n7"


@in_virtual_time
async def test_an_older_spelling_of_what_is_gone_is_gone():
    found = directory(Respelt(*MACHINES))
    assert kinds(await ask(found, old("n300"), by_id("n1"))) == [NotFound, Instance]
    assert kinds(await ask(found, old("none"))) == [NotFound]


@in_virtual_time
@pytest.mark.parametrize("name", ["?", "bug"])
async def test_a_spelling_that_nobody_can_read_is_unknown_and_never_gone(name):
    found = directory(Respelt(*MACHINES))
    assert kinds(await ask(found, old(name), by_id("n1"))) == [Conflict, Instance]
    assert kinds(await ask(found, old(name))) == [Conflict]


# --- what is known without asking -------------------------------------------------------------------------------------


@in_virtual_time
async def test_known_is_the_last_listing_overlaid_with_later_single_reads():
    fake = FakeInstances(machine("n0"), machine("n1"))
    found = directory(fake)
    assert found.known("fake://n0") is None and found.named("n0") == [] and found.listed_at < 0
    await found.list(not_before=now())
    assert found.known("fake://n0") == machine("n0") and found.listed_at == 1000.0
    assert found.named("n1") == [machine("n1")]
    renamed = Instance("fake://n0", "another")
    fake.single["n0"] = renamed
    await asyncio.sleep(1)
    await found.get(by_id("n0"))
    assert found.known("fake://n0") == renamed
    assert (found.named("n0"), found.named("another")) == ([], [renamed])
    await asyncio.sleep(1)
    await found.list(not_before=now())  # newer than the single read
    assert found.known("fake://n0") == machine("n0") and found.named("another") == []
    assert len(fake.calls) == 3


@in_virtual_time
async def test_a_single_read_that_began_before_a_listing_says_nothing_new():
    fake = FakeInstances(machine("n0"), latency=5.0)
    found = directory(fake)
    fake.single["n0"] = Instance("fake://n0", "old-name")
    reading = asyncio.create_task(found.get(by_id("n0")))
    await asyncio.sleep(1)
    fake.latency = 1.0
    await found.list(not_before=now())
    assert (await reading).name == "old-name"
    assert found.known("fake://n0") == machine("n0")


@in_virtual_time
async def test_news_are_told_when_what_is_known_may_differ():
    fake = FakeInstances(machine("n0"))
    found, news = directory(fake), []
    found.on_news(news.append)
    await found.list(not_before=now())
    await found.get(by_id("n0"))  # the same as known
    assert news == [None]
    fake.single["n0"] = Instance("fake://n0", "another")
    await found.get(by_id("n0"))
    assert news == [None, fake.single["n0"]]
    found.replace(fake)
    assert news[2:] == [None] and found.known("fake://n0") is None and found.listed_at < 0


@in_virtual_time
async def test_spellings_of_one_provider_id_are_known_as_one():
    class Spelling(FakeInstances):
        def canonical(self, provider_id):
            return None if "?" in provider_id else provider_id.replace("old:", "fake:")

    found = directory(Spelling(machine("n0")))
    await found.list(not_before=now())
    assert found.known("old://n0") == found.known("fake://n0") == machine("n0")
    assert found.same_as("old://n0") == found.same_as("fake://n0")
    assert found.known("fake://?") is None and found.same_as("fake://?") == "fake://?"


@in_virtual_time
async def test_a_listing_under_way_is_shared_by_all_that_it_is_fresh_enough_for():
    fake = FakeInstances(*MACHINES, latency=1.0)
    found = directory(fake)
    began = now()
    first = asyncio.create_task(found.list(not_before=began))
    await asyncio.sleep(0.5)
    second = asyncio.create_task(found.list(not_before=began))
    later = asyncio.create_task(found.list(not_before=now()))
    first.cancel()  # the first asker stops waiting, the others continue
    assert (await second).began == began
    assert (await later).began == began + 1.0  # the listings do not overlap
    assert fake.count("list") == 2


@in_virtual_time
@pytest.mark.parametrize("pages", [1, 40])
async def test_one_listing_is_in_progress_and_one_follows_for_all_who_ask_meanwhile(pages):
    fake = FakeInstances(*MACHINES, latency=1.5)
    tokens = [None, *map(str, range(1, pages))]
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        fake.pages[token] = Page(MACHINES if token is None else (), next=following)
    most, in_progress = 0, 0
    read = fake.list_page

    async def counted(token):
        nonlocal most, in_progress
        in_progress += 1
        most = max(most, in_progress)
        try:
            return await read(token)
        finally:
            in_progress -= 1

    fake.list_page = counted
    found, began = directory(fake), now()
    asked = []
    for _ in range(60):
        asked += [asyncio.create_task(found.list(not_before=now())) for _ in range(2)]
        await asyncio.sleep(1.0)
    snapshots = await asyncio.gather(*asked)
    assert most == 1
    assert {each.began - began for each in snapshots} <= {1.5 * pages * number for number in range(60)}
    assert len({each.began for each in snapshots}) <= 1 + -(-60 // int(1.5 * pages))


def endless(fake, instances):
    """Make each page take a second and name a next page, without an end."""

    async def list_page(token):
        fake.calls.append("list")
        await asyncio.sleep(1.0)
        number = int(token or 0)
        return Page(instances(number), next=str(number + 1))

    fake.list_page = list_page


@in_virtual_time
@pytest.mark.parametrize("size", [1, 20, 300])
async def test_a_listing_that_repeats_its_pages_under_new_names_ends(size):
    fake = FakeInstances(*MACHINES)
    endless(fake, lambda number: [MACHINES[(number * size + each) % len(MACHINES)] for each in range(size)])
    with pytest.raises(Transient, match="its pages do not end"):
        await directory(fake).list(not_before=now())
    assert len(fake.calls) == -(-len(MACHINES) // size) + 10


@in_virtual_time
async def test_a_listing_of_pages_without_an_end_ends(monkeypatch):
    """The pages are empty, or each has a new instance."""
    monkeypatch.setattr(instance_snapshot, "MOST_PAGES", 50)
    for instances in (lambda number: [], lambda number: [machine(f"m{number}")]):
        fake = FakeInstances()
        endless(fake, instances)
        found = directory(fake)
        for _ in range(2):
            with pytest.raises(Transient, match="50 have been read"):
                await found.list(not_before=now())
        assert len(fake.calls) == 100


@in_virtual_time
async def test_pages_that_shift_while_they_are_read_and_empty_ones_are_no_endless_listing():
    fake = FakeInstances(*MACHINES)
    pages = [MACHINES[:20], *[MACHINES[:20]] * 9, MACHINES[10:30], *[[]] * 30, MACHINES[30:], *[MACHINES[:20]] * 10]
    for number, instances in enumerate(pages):
        fake.pages[str(number) if number else None] = Page(instances, next=str(number + 1))
    fake.pages[str(len(pages) - 1)] = Page(pages[-1])
    assert len((await directory(fake).list(not_before=now())).by_id) == len(MACHINES)


@in_virtual_time
async def test_the_pages_of_the_listing_in_progress_are_counted():
    """While a long first listing runs, lookups of new Nodes use single reads instead of waiting for another listing."""
    fake = FakeInstances(*MACHINES, latency=1.5)
    tokens = [None, *map(str, range(1, 40))]
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        fake.pages[token] = Page(MACHINES if token is None else (), next=following)
    found = directory(fake)
    first = asyncio.create_task(found.list(not_before=now()))
    await asyncio.sleep(10.0)
    started = now()
    names = [each.name for each in MACHINES[:2]]
    await asyncio.gather(*(found.lookup(InstanceRef(name), not_before=started) for name in names))
    assert now() - started < 5.0, "single reads: the listing has more pages than there are questions"
    first.cancel()


@in_virtual_time
async def test_a_listing_that_fails_does_not_fail_the_one_that_follows():
    fake = FakeInstances(*MACHINES, latency=1.0)
    good = fake.pages[None]
    fake.pages[None] = Transient("down")
    found = directory(fake)
    first = asyncio.create_task(found.list(not_before=now()))
    await asyncio.sleep(0.5)
    second = asyncio.create_task(found.list(not_before=now()))
    with pytest.raises(Transient, match="down"):
        await first
    fake.pages[None] = good
    assert (await second).by_id
    assert (await found.list(not_before=now())).by_id


@in_virtual_time
async def test_an_unusable_or_empty_listing_proves_no_absence():
    fake = FakeInstances()
    found = directory(fake)
    await found.list(not_before=now())
    assert found.listed_at < 0
    fake.pages[None] = Page([machine("n0"), "rubbish"])
    await asyncio.sleep(1)
    await found.list(not_before=now())
    assert found.listed_at < 0 and found.known("fake://n0") == machine("n0")


# --- instances that are gone ----------------------------------------------------------------------------------------


@in_virtual_time
async def test_an_instance_that_is_gone_is_remembered_until_the_cloud_is_replaced():
    found = directory(FakeInstances(*MACHINES))
    assert found.gone_for("fake://n1") is None
    found.confirm_gone("fake://n1")
    await asyncio.sleep(5)
    assert found.gone_for("fake://n1") == 5.0 and found.gone_for("fake://n2") is None
    found.replace(FakeInstances(*MACHINES))
    assert found.gone_for("fake://n1") is None


@in_virtual_time
async def test_only_the_latest_instances_that_are_gone_are_remembered():
    found = directory(FakeInstances())
    for number in range(REMEMBERED_GONE):
        found.confirm_gone(f"fake://n{number}")
    found.confirm_gone("fake://n0")
    found.confirm_gone("fake://another")
    assert found.gone_for("fake://n1") is None
    assert found.gone_for("fake://n0") is not None and found.gone_for("fake://another") is not None
