# SPDX-License-Identifier: Apache-2.0
"""Values of annotations: what each form accepts, and what it refuses."""

import pytest

from ccm.cloud.toolkit.annotation_reader import (
    LONGEST,
    MANY,
    Annotation,
    AnnotationTable,
    ServiceAnnotations,
    address,
    boolean,
    host_name,
    number,
    one_of,
    selector,
    short_text,
    tags,
)

LABEL = "a" * 63
NAME_253 = ".".join([LABEL] * 3 + ["a" * 61])
FULL_IPV6 = "0000:0000:0000:0000:0000:ffff:255.255.255.255"


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (short_text, " a name ", "a name"),
        (short_text, "x" * 255, "x" * 255),
        (address, "", ""),
        (address, " 192.0.2.1 ", "192.0.2.1"),
        (address, "FD00:0::1", "fd00::1"),
        (address, FULL_IPV6, "::ffff:ffff:ffff"),
        (tags, " a,b ", "a,b"),
        (tags, "x" * 1024, "x" * 1024),
        (tags, ",".join("x" * MANY), ",".join("x" * MANY)),
        (host_name, "", ""),
        (host_name, "lb.example.com", "lb.example.com"),
        (host_name, "10.example", "10.example"),
        (host_name, "web", "web"),
        (host_name, NAME_253, NAME_253),
        (boolean, "true", True),
        (boolean, "false", False),
        (number(1, 9), "1", 1),
        (number(1, 9), " 9 ", 9),
        (number(-5, 9), "-5", -5),
        (one_of("a", "b"), "b", "b"),
        (selector, "", {}),
        (selector, "a=b, c ,d=", {"a": "b", "c": None, "d": None}),
        (selector, ",".join(f"k{number}" for number in range(MANY)), {f"k{number}": None for number in range(MANY)}),
    ],
)
def test_a_value_is_accepted(read, text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (short_text, "x" * 256),
        (short_text, "a\x00b"),
        (address, "lb.example.com"),
        (address, "fe80::1%eth0"),
        (tags, "x" * 1025),
        (tags, "a\nb"),
        (tags, ",".join("x" * (MANY + 1))),
        (host_name, "192.0.2.1"),
        (host_name, "Web.example"),
        (host_name, "web..example"),
        (host_name, "example.1"),
        (host_name, NAME_253 + "a"),
        (boolean, "True"),
        (boolean, ""),
        (number(1, 9), "0"),
        (number(1, 9), "10"),
        (number(1, 9), "x"),
        (number(1, 9), "٣"),
        (number(1, 9), "1" * 5000),
        (one_of("a", "b"), "c"),
        (selector, "=b"),
        (selector, "a b=c"),
        (selector, "a=b c"),
        (selector, ",".join(f"k{number}" for number in range(MANY + 1))),
    ],
)
def test_a_value_is_refused(read, text):
    with pytest.raises(ValueError):
        read(text)


def test_a_value_is_as_long_as_it_may_be_and_no_longer():
    table = AnnotationTable("x/", [Annotation("x/any", "text", "Any", str)])
    assert ServiceAnnotations({"x/any": "y" * LONGEST}, table).problems == []
    (problem,) = ServiceAnnotations({"x/any": "y" * (LONGEST + 1)}, table).problems
    assert str(LONGEST) in problem


def test_others_annotations_in_front_of_ours_are_passed_over():
    table = AnnotationTable("x/", [Annotation("x/any", "text", "Any", str)])
    assert ServiceAnnotations({"a/any": "1", "x/any": "2"}, table).get("any") == "2"
