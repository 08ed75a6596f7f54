"""One rule for the name of a model: what says which one it is, and no more than tells two apart."""

import pytest

from infoflow.studies import distinct_names

NAMES = {
    ("/home/jane/minilm/model",): ["minilm"],
    ("/runs/models/masked-lm/seed-0", "/runs/models/masked-lm/seed-1"): ["masked-lm/seed-0", "masked-lm/seed-1"],
    ("/one/models/bert/final", "/two/models/bert/final"): ["one/bert", "two/bert"],
    ("/bert/checkpoint-500", "/bert/best"): ["bert/checkpoint-500", "bert"],
    ("/bert/model", "/bert/final"): ["model", "final"],
    ("someone/tiny", "another/tiny@step1"): ["tiny", "tiny@step1"],
    ("a/small.gguf", "b/small.gguf"): ["a/small", "b/small"],
}


@pytest.mark.parametrize("sources", NAMES)
def test_names_are_short_and_distinct(sources) -> None:
    assert distinct_names(sources) == NAMES[sources]


def test_given_names_are_taken() -> None:
    assert distinct_names(["/a/model", "/b/model"], anonymous=True, given_names=["one", "two"]) == ["one", "two"]
