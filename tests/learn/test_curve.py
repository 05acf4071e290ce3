"""The learning curve for programs and for people."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree

from modelyard.learn.curve import Point, curve_csv, curve_svg

CURVE = [
    Point(0, checked_seconds=100.0),
    Point(1, explored_seconds=90.0, reward=0.5),
    Point(2, explored_seconds=80.0, checked_seconds=70.0),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_rows_have_what_was_measured() -> None:
    rows = list(csv.DictReader(io.StringIO(curve_csv(CURVE))))
    assert [row["round"] for row in rows] == ["0", "1", "2"]
    assert [row["checked_seconds"] for row in rows] == ["100", "", "70"]
    assert rows[1]["reward"] == "0.5"


def test_the_picture_has_both_curves_and_the_other_policies() -> None:
    drawn = ElementTree.fromstring(curve_svg(CURVE, {"mesos": 120.0, "a<b": 85.0}))
    explored, checked = drawn.findall(f"{SVG}polyline")
    assert len(explored.attrib["points"].split()) == 2
    first, last = (point.split(",") for point in checked.attrib["points"].split())
    assert float(first[0]) < float(last[0]), "time goes to the right"
    assert float(first[1]) < float(last[1]), "100 s are drawn above 70 s"
    words = [text.text for text in drawn.findall(f"{SVG}text")]
    assert "mesos" in words
    assert "a<b" in words


def test_a_picture_of_nothing_is_a_picture() -> None:
    assert ElementTree.fromstring(curve_svg([], {})).tag == f"{SVG}svg"
