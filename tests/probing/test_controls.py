"""Control labels: a function of seed and type, drawn like the task's labels, and read off the right words."""

import numpy as np
import pytest

from infoflow.corpus import Corpus
from infoflow.foundation import UserError
from infoflow.probing import (
    NO_ANSWER,
    Examples,
    ExampleTypes,
    Part,
    ProbeTask,
    control_arcs,
    control_heads,
    control_labels,
    example_types,
)

TEXTS = ["the cat sees the dog", "a dog sleeps", "the cat sleeps", "the", "a cat"]


def part(corpus, cells, second=None):
    rows, starts, ends, labels = np.array(cells).T
    first = np.stack([starts, ends], axis=1)
    return Part(corpus=corpus, examples=Examples(sentence=rows, first=first, second=second, label=labels))


def task(unit="token", second=None, names=("x", "y")):
    corpus = Corpus.from_sentences(TEXTS)
    cells = [(0, 0, 1, 0), (0, 3, 5, 1), (1, 1, 3, 0)], [(2, 0, 1, 1)], [(3, 0, 1, 1), (4, 0, 2, 0)]
    seconds = (None, None, None) if second is None else [second[: len(each)] for each in cells]
    parts = [part(corpus, each, s) for each, s in zip(cells, seconds, strict=True)]
    return ProbeTask(name="t", unit=unit, names=names, train=parts[0], dev=parts[1], test=parts[2])


def types(num, parts=(0.6, 0.2, 0.2), size=4000):
    rng = np.random.default_rng(0)
    of = dict(zip(("train", "dev", "test"), (rng.integers(0, num, int(size * share)) for share in parts), strict=True))
    return ExampleTypes(names=tuple(f"w{n}" for n in range(num)), of=of)


@pytest.mark.parametrize("unit", ["token", "span", "pair"])
def test_a_type_is_the_first_word(unit):
    found = example_types(task(unit))
    assert [found.names[n] for n in found.of["train"]] == ["the", "the", "dog"]
    assert [found.names[n] for n in found.of["test"]] == ["the", "a"]


def test_of_a_sentence_it_is_the_text():
    found = example_types(task("sentence"))
    assert [found.names[n] for n in found.of["train"]] == [TEXTS[0], TEXTS[0], TEXTS[1]]
    assert len(set(found.of["test"]) | set(found.of["dev"])) == 3


def test_a_label_depends_on_seed_and_type_alone():
    many = types(500)
    labels = {name: np.random.default_rng(1).integers(0, 5, len(each)) for name, each in many.of.items()}
    first = control_labels(many, labels, 5, seed=3)
    few = ExampleTypes(names=("w17", "w4"), of={name: each % 2 for name, each in many.of.items()})
    other = control_labels(few, labels, 5, seed=3)
    assert other.label_of.tolist() == first.label_of[[17, 4]].tolist()
    assert (control_labels(many, labels, 5, seed=4).label_of != first.label_of).mean() > 0.5
    for name, each in many.of.items():
        assert np.array_equal(first.of[name], first.label_of[each])


def test_labels_are_drawn_like_the_tasks():
    many = types(20_000)
    rng = np.random.default_rng(2)
    shares = np.array([0.6, 0.25, 0.0, 0.14, 0.01])
    labels = {name: rng.choice(5, len(each), p=shares) for name, each in many.of.items()}
    drawn = np.bincount(control_labels(many, labels, 5).label_of, minlength=5) / 20_000
    expected = np.bincount(labels["train"], minlength=5) / len(labels["train"])
    assert drawn[2] == 0
    np.testing.assert_allclose(drawn, expected, atol=4 * np.sqrt(0.25 / 20_000))


def test_a_share_of_the_examples_is_corrupted_and_more_of_them_holds_less():
    many = types(300)
    labels = {name: np.full(len(each), 7) for name, each in many.of.items()}  # the control never draws 7 alone
    labels["train"][:] = np.arange(len(labels["train"])) % 7
    before = np.zeros(300, dtype=bool)
    for share in (0.0, 0.2, 0.7, 1.0):
        found = control_labels(many, labels, 8, corrupted=share)
        corrupted = found.label_of != NO_ANSWER
        mass = np.mean(np.concatenate([corrupted[each] for each in many.of.values()]))
        assert share - 0.02 <= mass <= share
        assert (corrupted | ~before).all()
        assert np.array_equal(found.of["test"] == 7, ~corrupted[many.of["test"]])
        before = corrupted
    with pytest.raises(UserError, match=r"corrupted must lie in 0\.\.1.* Got 1\.5"):
        control_labels(many, labels, 8, corrupted=1.5)


def test_heads_by_lot_are_the_word_itself_the_first_or_the_last():
    words = [f"w{n % 40}" for n in range(120)]
    heads = control_heads(words, seed=1)
    choice = {}
    for at, (word, head) in enumerate(zip(words, heads, strict=True)):
        kinds = {name for name, place in (("self", at), ("first", 0), ("last", 119)) if place == head}
        choice[word] = choice.get(word, {"self", "first", "last"}) & kinds
    assert all(len(kinds) >= 1 for kinds in choice.values())
    assert {kind for kinds in choice.values() if len(kinds) == 1 for kind in kinds} == {"self", "first", "last"}
    assert (control_heads(words, seed=2) != heads).any()


def test_arcs_by_lot_ask_each_word_about_its_head_and_another():
    second = np.array([[2, 3], [0, 1], [0, 1]])
    asked = task("pair", second, ("none", "arc"))
    found = control_arcs(asked.train, asked.names, seed=5)
    assert len(found) == 2 * 3
    for at in range(0, 6, 2):
        row, word = int(found.sentence[at]), int(found.first[at, 0])
        words = TEXTS[row].split()
        heads = control_heads(words, seed=5)
        assert found.label[at : at + 2].tolist() == [1, 0]
        assert found.second[at, 0] == heads[word] != found.second[at + 1, 0] < len(words)
        assert (found.first[at] == found.first[at + 1]).all()
    alone = control_arcs(Part(corpus=asked.test.corpus, examples=asked.test.examples), asked.names)
    assert set(alone.sentence.tolist()) == {4}  # a sentence of one word has no other
