# SPDX-License-Identifier: Apache-2.0
"""What the tests with generated texts have in common: how a text comes out, and the table that they print."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml


class Tally:
    """How many texts came out in which way, with the first examples of each wrong way."""

    def __init__(self, title: str) -> None:
        self.title, self.ways, self.examples = title, Counter[str](), dict[str, list[Any]]()

    def add(self, way: str, *example: Any) -> None:
        self.ways[way] += 1
        if example and len(self.examples.setdefault(way, [])) < 3:
            self.examples[way].append(example)

    def judge(self, least: int, refused: float) -> None:
        """Print the table. Fail if one text is wrong, or if too many are refused."""
        total = sum(self.ways.values())
        print(
            f"{self.title}: {total} texts: " + ", ".join(f"{number} {way}" for way, number in self.ways.most_common())
        )
        for way, examples in self.examples.items():
            for example in examples:
                print(f"  {way}:", *example, sep="\n")
        assert total >= least
        assert not [way for way in self.ways if way.startswith(("wrong", "crash"))]
        assert sum(number for way, number in self.ways.items() if way.startswith("refused")) <= refused * total


def rewritten(data: Any) -> str:
    """Data as a program writes it that reads and writes the whole file."""
    return str(yaml.safe_dump(data, default_flow_style=False))
