# SPDX-License-Identifier: Apache-2.0
import pytest

from ccm.base import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("+0", 0.0),
        ("-0", 0.0),
        ("5s", 5.0),
        ("30s", 30.0),
        ("1478s", 1478.0),
        ("-5s", -5.0),
        ("+5s", 5.0),
        ("5.0s", 5.0),
        ("5.6s", 5.6),
        ("5.s", 5.0),
        (".5s", 0.5),
        ("100.00100s", 100.001),
        ("10ns", 1e-8),
        ("11us", 11e-6),
        ("12\u00b5s", 12e-6),
        ("12\u03bcs", 12e-6),
        ("13ms", 0.013),
        ("14s", 14.0),
        ("15m", 900.0),
        ("16h", 57600.0),
        ("3h30m", 12600.0),
        ("10.5s4m", 250.5),
        ("-2m3.4s", -123.4),
        ("1h2m3s4ms5us6ns", 3723.004005006),
        ("39h9m14.425s", 140954.425),
        ("1m1m", 120.0),
    ],
)
def test_what_go_takes(text, seconds):
    assert durations.parse(text) == pytest.approx(seconds, rel=1e-12, abs=0.0)


REFUSED = ["", "3", "-", "+", "s", ".", "-.", ".s", "+.s", "5", "1d", "5 s", " 5s", "5s ", "5S", "--5s", "1e3s", "5s3"]


@pytest.mark.parametrize("text", [*REFUSED, "\u0665s", "1,5s", "5m-3s", "5ss", "nan", "infs"])
def test_what_go_refuses(text):
    with pytest.raises(ValueError, match="is not a duration such as 10s, 5m or 1h30m") as caught:
        durations.parse(text)
    assert str(caught.value).startswith(repr(text))
