import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.adaptation._answer_match import answer_f1, exact_match
from infoflow.retrieval import normalise_answer


def _normalise(s: str) -> str:
    """The published evaluation script of SQuAD, step by step."""
    s = s.lower()
    s = "".join(ch for ch in s if ch not in set(string.punctuation))
    s = re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", s)
    return " ".join(s.split())


def _f1(gold: str, said: str) -> float:
    gold_tokens, said_tokens = _normalise(gold).split(), _normalise(said).split()
    num_same = sum((Counter(gold_tokens) & Counter(said_tokens)).values())
    if len(gold_tokens) == 0 or len(said_tokens) == 0:
        return int(gold_tokens == said_tokens)
    if num_same == 0:
        return 0
    precision, recall = num_same / len(said_tokens), num_same / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def _script(said: str, answers: list[str]) -> tuple[float, float]:
    gold = [answer for answer in answers if _normalise(answer)] or [""]
    exact = max(int(_normalise(a) == _normalise(said)) for a in gold)
    return exact, max(_f1(a, said) for a in gold)


words = st.lists(
    st.sampled_from(["The", "a", "an", "cat", "Cat's", "U.S.", "—", "über", "theory", "!", "42"]), max_size=6
)
texts = words.map(" ".join)


@given(said=texts, answers=st.lists(texts, max_size=3))
def test_scores_are_those_of_the_published_script(said, answers):
    exact, f1 = _script(said, answers)
    assert exact_match(said, answers) == exact
    assert answer_f1(said, answers) == pytest.approx(f1, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat's (tail)!", "cats tail"),
        ("theory of a-an", "theory of aan"),
        ("THE THE", ""),
        ("an £20,133 “quote”", "£20133 “quote”"),  # only ASCII punctuation goes
    ],
)
def test_normalisation_of_known_cases(text, normal):
    assert normalise_answer(text) == normal == _normalise(text)


def test_hand_made_scores():
    assert answer_f1("in the red house", ["red house", "garden"]) == pytest.approx(0.8)
    assert exact_match("Red House.", ["a red house"]) == 1.0
    assert (exact_match("", []), answer_f1("", []), answer_f1("cat", [])) == (1.0, 1.0, 0.0)
    assert answer_f1("", ["cat"]) == 0.0
    assert exact_match("the", ["cat", "a"]) == 0.0  # an answer of nothing but an article is none
