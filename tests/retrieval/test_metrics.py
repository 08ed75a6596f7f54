"""Rankings, answers and bits against the specification's numbers."""

import math

import numpy as np
import pytest
import torch

from infoflow.foundation import UserError
from infoflow.models import contains_answer, exact_match, memorisation_ratio, normalise_answer, stored_bits, token_f1
from infoflow.retrieval import evidence_entry, hit_at, recall_at, reciprocal_rank

RANKED, RELEVANT = [[3, 1, 2], [5, 4, 9]], [{1, 7}, {9}]


def test_reference_rankings():
    assert [hit_at(RANKED, RELEVANT, k).mean() for k in (1, 2, 3)] == [0, 0.5, 1]
    assert [recall_at(RANKED, RELEVANT, k).mean() for k in (2, 3)] == [0.25, 0.75]
    assert reciprocal_rank(RANKED, RELEVANT).mean() == pytest.approx(0.416667, abs=1e-6)
    assert reciprocal_rank(RANKED, RELEVANT, 2).mean() == 0.25


def test_nothing_found_is_no_hit():
    assert hit_at(np.array([[-1, -1]]), [{0}], 2).tolist() == [0]


@pytest.mark.parametrize("relevant", [[set(), {9}], [{-1}, {9}], [{1}]])
def test_every_query_needs_something_relevant(relevant):
    with pytest.raises(UserError):
        hit_at(RANKED, relevant, 1)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The  Beatles' (band)!", "beatles band"),
        ("A.N. Other", "other"),
        ("3,5-dimethyl", "35dimethyl"),
        ("the", ""),
        ("theatre an apple", "theatre apple"),
    ],
)
def test_normalisation(text, wanted):
    assert normalise_answer(text) == wanted


def test_f1_and_exact_match():
    assert token_f1("the old red house", ["red house", "a red barn"]) == pytest.approx(0.8)
    assert not exact_match("the old red house", ["red house", "a red barn"])
    assert token_f1("Rome Rome", ["rome"]) == pytest.approx(0.666667, abs=1e-6)
    assert exact_match("", "the")
    assert token_f1("", "the") == 1
    assert token_f1("", "rome") == token_f1("rome", "the") == 0
    with pytest.raises(UserError, match="at least one answer"):
        exact_match("rome", [])


def test_an_answer_is_found_as_a_run_of_words():
    assert contains_answer("He lived in New York, then.", "new york")
    assert not contains_answer("York is new", "new york")
    assert not contains_answer("in Newark", "new")
    assert contains_answer("Caf\u00e9 noir", "cafe\u0301")  # accents composed or not
    assert not contains_answer("Cafe noir", "caf\u00e9")
    assert not contains_answer("anything at all", ["", "!?"])
    assert not contains_answer("house", "the house")


def test_memorisation():
    answers = ["old"] * 12 + ["new"] * 180 + ["other"] * 8
    assert memorisation_ratio(answers, ["old"] * 200, ["new"] * 200) == 0.0625
    assert math.isnan(memorisation_ratio(["other"], ["old"], ["new"]))


def test_bits():
    bits = stored_bits(torch.tensor([0.5, 0.9, 1 / 32, 0.01]).double().log(), 32)
    assert bits.tolist() == pytest.approx([4, 4.847997, 0, -1.643856], abs=1e-6)
    assert bits.mean().item() == pytest.approx(1.801035, abs=1e-6)
    assert stored_bits(np.log([0.5, 1.0]), np.array([2, 1])).tolist() == pytest.approx([0, 0])
    with pytest.raises(UserError):
        stored_bits(np.log([0.5]), 0)


def test_evidence_entry():
    half, centre = evidence_entry([0, 0.02, 0.05, 0.3, 0.8, 0.9])
    assert (half, centre) == (4, pytest.approx(3.7))
    assert all(map(math.isnan, evidence_entry([0, 0.01, 0.04])))
    with pytest.raises(UserError):
        evidence_entry([0.5])
