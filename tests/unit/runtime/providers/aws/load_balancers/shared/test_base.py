# SPDX-License-Identifier: Apache-2.0
"""What load balancers of both types have in common."""

from __future__ import annotations

import pytest

from ccm.cloud import NotFound, Transient
from ccm.providers.aws.load_balancers.shared.base import TAGGED, Tags, tags_of_all

NAMES = [f"lb-{number}" for number in range(TAGGED + 3)]


class Tagged:
    """A cloud in which some load balancers are gone: a request that names one of them fails as a whole."""

    def __init__(self, *gone: str) -> None:
        self.gone, self.questions = set(gone), []

    async def ask(self, names: list[str]) -> Tags:
        self.questions.append(len(names))
        if self.gone & set(names):
            raise NotFound("one of them is gone")
        return {name: {"name": name} for name in names}


async def test_tags_are_read_in_questions_of_the_size_that_aws_allows():
    cloud = Tagged()
    assert list(await tags_of_all(NAMES, cloud.ask)) == NAMES
    assert cloud.questions == [TAGGED, 3]


@pytest.mark.parametrize("gone", [("lb-0",), ("lb-1", "lb-21"), tuple(NAMES)])
async def test_tags_of_the_others_are_read_if_one_is_gone(gone: tuple[str, ...]):
    assert list(await tags_of_all(NAMES, Tagged(*gone).ask)) == [name for name in NAMES if name not in gone]


async def test_no_names_cost_no_question():
    cloud = Tagged()
    assert await tags_of_all([], cloud.ask) == {} and cloud.questions == []


async def test_another_error_is_not_taken_for_an_answer():
    async def ask(names: list[str]) -> Tags:
        raise Transient("later")

    with pytest.raises(Transient, match="later"):
        await tags_of_all(NAMES, ask)
