"""Explanations as a page tells them."""

from __future__ import annotations

from modelyard.web.waiting import named


def test_jobs_are_called_by_their_names_and_others_stay_as_they_are() -> None:
    names = {"b144102e0cfb": "finetune", "67c19e9d303b": "sweep-9"}
    told = named("Job b144102e0cfb waits behind 67c19e9d303b, 0e1f2a3b4c5d: 8 devices.", names)
    assert told == "Job finetune waits behind sweep-9, 0e1f2a3b4c5d: 8 devices."
