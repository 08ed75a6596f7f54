"""What each objective makes of a text: inputs and targets as the objective's own code makes them."""

import re
from itertools import pairwise

import pytest

from infoflow.foundation import UserError
from infoflow.objectives import OBJECTIVES, MultiTask, further_objectives, make_objective, show_text

TEXT = "The cat sat on the mat. It saw a dog and ran away."
WORDS = ["The", "cat", "sat", "on", "the", "mat", ".", "It", "saw", "a", "dog", "and", "ran", "away", "."]
FRENCH = "Le chat était assis."
NOTHING = "·"
ALONE = {name: cls for name, cls in OBJECTIVES.items() if name != "multitask"}
TASKS = [f"multitask: {task}" for task in MultiTask().tasks]


@pytest.fixture(scope="module")
def shown():
    return show_text(TEXT, translation=FRENCH)


def asked(tokens) -> dict[int, str]:
    """The targets with their positions."""
    return {place: token for place, token in enumerate(tokens) if token != NOTHING}


def test_every_objective_is_shown(shown) -> None:
    assert list(shown) == [*ALONE, *TASKS, *further_objectives()]
    for name, made in shown.items():
        assert all(map(len, made.inputs.values())), name
        assert any(token != NOTHING for tokens in made.targets.values() for token in tokens), name


def test_targets_are_loss_terms(shown) -> None:
    for name in set(shown) - {"skip-gram"}:
        assert set(shown[name].targets) <= set(make_objective(name.partition(":")[0]).term_weights), name
    assert shown["distillation"].targets.keys() == {"masked-lm", "teacher", "cosine"}
    assert shown["spanbert"].targets.keys() == {"masked-lm", "span-boundary"}


def test_a_causal_model_predicts_the_next_token(shown) -> None:
    made = shown["causal-lm"]
    assert made.inputs["tokens"] == ["[CLS]", *WORDS, "[SEP]"]
    assert made.targets["causal-lm"] == [*WORDS, "[SEP]", NOTHING]
    assert shown["bilm"].inputs["backward"] == made.inputs["tokens"][::-1]
    assert shown["bilm"].targets["backward"] == [*WORDS[::-1], "[CLS]", NOTHING]


@pytest.mark.parametrize("name", ["masked-lm", "spanbert", "distillation", "closed-book"])
def test_a_masked_model_predicts_the_words_that_stood_there(shown, name) -> None:
    made = shown[name]
    term = "masked-lm" if name in ("spanbert", "distillation") else name
    hidden, clean = asked(made.targets[term]), ["[CLS]", *WORDS, "[SEP]"]
    assert hidden
    for place, (read, text) in enumerate(zip(made.inputs["tokens"], clean, strict=True)):
        assert hidden.get(place, text) == text
        assert read == text or place in hidden


def test_pairs_have_tokens_segments_and_positions(shown) -> None:
    made = shown["masked-lm-nsp"]
    first, second = ["The", "cat", "sat", "on", "the", "mat", "."], WORDS[7:]
    length = len(WORDS) + 3
    assert made.inputs["segments"] == ["A"] * (len(first) + 2) + ["B"] * (len(second) + 1)
    assert made.inputs["positions"] == [str(place) for place in range(length)]
    assert [place for place, token in enumerate(made.inputs["tokens"]) if token == "[SEP]"] == [8, length - 1]
    assert made.targets["next-sentence"] == ["B follows A"]
    assert shown["masked-lm-sop"].targets["sentence-order"] == ["in order"]


def test_one_sentence_is_cut_into_two_segments() -> None:
    made = show_text("one two three four", ["masked-lm-nsp"])["masked-lm-nsp"]
    assert made.inputs["segments"] == list("AAAABBB")


def test_skip_gram_pairs_are_neighbours_and_drawn_words(shown) -> None:
    made = shown["skip-gram"]
    pairs = {tuple(pair[1:-1].split(", ")) for pair in made.targets["true"]}
    near = {(a, b) for i, a in enumerate(WORDS) for j, b in enumerate(WORDS) if 0 < abs(i - j) <= 5}
    assert pairs <= near
    assert {*pairwise(WORDS)} <= pairs
    assert len(made.targets["drawn"]) == len(made.targets["true"])


def test_the_discriminator_s_targets_are_the_tokens_that_changed(shown) -> None:
    made = shown["electra"]
    clean = ["[CLS]", *WORDS, "[SEP]"]
    replaced = [read != text for read, text in zip(made.inputs["discriminator"], clean, strict=True)]
    assert [token == "replaced" for token in made.targets["replaced-token"]] == replaced
    assert {place for place, changed in enumerate(replaced) if changed} <= set(asked(made.targets["generator"]))


def test_decoders_write_the_text_the_translation_or_what_was_taken_out(shown) -> None:
    for name, cls in ALONE.items():
        made = shown[name]
        if cls.layout != "encoder-decoder" or name == "mass":
            continue
        (target,) = made.targets.values()
        assert made.inputs["decoder"][1:] == target[:-1], name
        if cls.writes == "text":
            assert target == [*WORDS, "[SEP]"], name
    assert shown["translation"].targets["translation"] == ["Le", "chat", "était", "assis", ".", "[SEP]"]
    assert shown["drop-tokens"].inputs["encoder"] != ["[CLS]", *WORDS, "[SEP]"]
    made = shown["span-corruption"]
    (target,) = made.targets.values()
    marks = [token for token in made.inputs["encoder"] if token.startswith("<extra_id_")]
    assert marks == [f"<extra_id_{number}>" for number in range(len(marks))] != []
    left = [token for token in made.inputs["encoder"][1:-1] if token not in marks]
    written = [token for token in target[:-1] if not token.startswith("<extra_id_")]
    assert sorted(left + written) == sorted(WORDS)


def test_each_task_of_one_model_is_shown_with_its_prefix(shown) -> None:
    """What differs from the objective alone is the prefix, and the numbers of random draws."""
    translating, spans = (shown[name] for name in TASKS)
    prefix = ["translate", "English", "to", "French", ":"]
    assert translating.inputs["encoder"] == ["[CLS]", *prefix, *WORDS, "[SEP]"]
    assert translating.targets == {"multitask": shown["translation"].targets["translation"]}
    assert spans.inputs == shown["span-corruption"].inputs
    assert spans.targets == {"multitask": shown["span-corruption"].targets["span-corruption"]}


def test_the_decoder_of_mass_has_the_positions_of_its_fragment(shown) -> None:
    made = shown["mass"]
    places = list(map(int, made.inputs["positions"]))
    clean = ["[CLS]", *WORDS, "[SEP]"]
    assert made.inputs["decoder"] == [clean[place] for place in places]
    assert made.targets["mass"] == [clean[place + 1] for place in places]


def test_a_passage_loses_its_query(shown) -> None:
    made = shown["inverse-cloze"]
    query, passage = (made.inputs[name] for name in ("query", "passage"))
    assert query[1:-1] in (WORDS[:7], WORDS[7:])
    assert passage[2:-1] in (WORDS, WORDS[:7], WORDS[7:])
    assert shown["retrieve-bm25"].inputs["passages"] == ["those that share rare words with it"]


def test_noise_follows_from_the_seed() -> None:
    first, again, other = (show_text(TEXT, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("text", ["Go", "No, no!", "词。", "<b>bold</b>"])
def test_short_texts_of_any_script_are_shown(text) -> None:
    assert len(show_text(text, translation=text)) == len(ALONE) + len(TASKS) + len(further_objectives())


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("", {}, "The text must have 1 to 512 words and signs. Got 0."),
        (" \n", {}, "Got 0."),
        ("word " * 513, {}, "Got 513."),
        ("A text.", {"objectives": ["masked-ml"]}, "Did you mean masked-lm"),
        ("A text.", {"objectives": ["causal-lm", "translation"]}, "Give it: --translation TEXT."),
        ("A text.", {"translation": " "}, "The translation must have"),
    ],
)
def test_what_cannot_be_shown_is_refused(text, options, told) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        show_text(text, **options)


def test_without_a_translation_only_translating_objectives_are_left_out(shown) -> None:
    assert set(shown) - set(show_text(TEXT)) == {"translation", *TASKS}
