"""The tasks of the grammar: labels held against the sentences that they are of."""

import pytest

from infoflow.adaptation import BUILT_IN_TASKS, built_in_task, make_task
from infoflow.corpus import generate_grammar
from infoflow.foundation import UserError


@pytest.fixture(scope="module")
def made():
    return {name: built_in_task(name, 120) for name in BUILT_IN_TASKS}


@pytest.mark.parametrize("name", BUILT_IN_TASKS)
def test_parts_share_no_text_and_a_task_is_made_of_them(name, made) -> None:
    data = made[name]
    texts = [list(part.column("text")) for part in (data.train, data.dev, data.test)]
    assert len(texts[0]) == 84
    assert sum(map(len, texts)) == 120 - sum(data.left_out.values())
    assert len(set().union(*texts)) == sum(map(len, texts))
    assert make_task(data).task == name
    again, other = built_in_task(name, 120), built_in_task(name, 120, seed=1)
    assert again.test.digest == data.test.digest != other.test.digest


def test_verbs_that_agree_and_verbs_that_do_not(made) -> None:
    data = made["grammar-agreement"]
    verbs = {sentence.words[sentence.head.index(-1)] for sentence in generate_grammar(3000)}
    labels = list(data.train.column("label"))
    assert set(labels) == {"good", "bad"}
    assert 0.3 < labels.count("good") / len(labels) < 0.7
    short = [(text.split(), label) for text, label in zip(data.train.column("text"), labels, strict=True)]
    for words, label in short:
        if len(words) == 4 and words[0] == "the" and words[2] in verbs and words[1] in ("dog", "child", "man"):
            assert words[2].endswith("s") == (label == "good"), words


def test_pairs_say_what_the_sentence_says_or_not(made) -> None:
    data = made["grammar-pairs"]
    for row in data.train:
        words = row.text.split()
        subject, verb, thing = row.second.split()
        assert {subject, verb, thing} <= set(words)
        if row.label == "so":
            assert words.index(subject) < len(words) - 1 - words[::-1].index(thing)
    assert set(data.labels) == {"so", "not-so"}


def test_answers_stand_where_they_are_said_to(made) -> None:
    for row in made["grammar-span"].train:
        (answer,), (start,) = row.answers, row.answer_starts
        assert row.text[start : start + len(answer)] == answer
        assert row.question.split()[1] in row.text.split()


def test_tags_and_summaries_are_of_the_words(made) -> None:
    for row in made["grammar-tags"].train:
        assert len(row.tags["tag"]) == len(row.words)
        assert row.tags["tag"][-1] == r"S\S"
    for row in made["grammar-summary"].train:
        assert len(row.translation.split()) == 3
        assert set(row.translation.split()) <= set(row.text.split())


def test_a_task_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r'There is no task "x"\. Built in: grammar-tags'):
        built_in_task("x")
    with pytest.raises(UserError, match=r"at least 20 examples\. Got 3"):
        built_in_task("grammar-tags", 3)
