"""What holds for every objective of the registry: batches, counts, guesses, texts with little or nothing in them."""

import numpy as np
import pytest
import torch
from objectives.zoo import VOCABULARY, distinct, framed, mixed, vocabulary

from infoflow.architectures import ModelConfig, build
from infoflow.foundation import UserError, stream
from infoflow.objectives import OBJECTIVES, Example, Noise, make_objective

SHAPE = ModelConfig(width=16, layers=1, heads=2, feedforward=32, positions=64)
LENGTHS = (20, 3, 35, 8)
VARIANTS = [
    *((name, {}) for name in OBJECTIVES),
    *(("masked-lm", {"selection": selection}) for selection in ("static", "bernoulli", "whole-word", "n-gram")),
    ("electra", {"selected_only": True}),
    ("skip-gram", {"subsampling": "paper", "threshold": 1e-2, "window": 2, "negatives": 1}),
    ("bart", {"leaves": "token", "spans": 0.0}),
    ("bart", {"leaves": "none", "insert": 0.1, "rotate": 1.0}),
]


def example_for(objective, tokens: np.ndarray, number: int = 0) -> Example:
    """`tokens`, framed, as what the objective reads."""
    if objective.reads == "pair":
        middle = 1 + (len(tokens) - 2) // 2
        labels = {objective.answer_key: np.array(number % 2)}
        return Example(texts=(tokens[1:middle], tokens[middle:-1]), labels=labels)
    translation = framed(*tokens[1:-1][::-1]) if objective.needs_translation else None
    return Example(texts=(tokens,), translation=translation)


def batch_for(objective, texts: list[np.ndarray], numbers: list[int] | None = None):
    numbers = list(range(len(texts))) if numbers is None else numbers
    examples = [
        objective.corrupt(example_for(objective, text, number), stream("every", number), VOCABULARY)
        for text, number in zip(texts, numbers, strict=True)
    ]
    return objective.collate(examples, VOCABULARY, noise=Noise(tuple(("every", number) for number in numbers)))


def model_for(objective, seed: int = 0):
    return build("bert", objective.layout, SHAPE, VOCABULARY, seed=seed).eval()


@pytest.fixture(scope="module")
def models():
    layouts = {objective.layout: objective for objective in map(make_objective, OBJECTIVES)}
    return {layout: model_for(objective) for layout, objective in layouts.items()}


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@torch.no_grad()
def test_padding_and_the_size_of_batches_change_no_loss(name, options, models) -> None:
    objective = make_objective(name, **options)
    module, texts = models[objective.layout], [mixed(n, n) for n in LENGTHS]
    batch = batch_for(objective, texts)
    whole = objective.loss(module, batch, batch.noise)
    alone = [batch_for(objective, [text], [number]) for number, text in enumerate(texts)]
    each = [objective.loss(module, one, one.noise) for one in alone]
    assert whole.keys() == objective.term_weights.keys() == objective.counts(batch).keys()
    for term, found in whole.items():
        assert found.count == objective.counts(batch)[term] == sum(one[term].count for one in each)
        assert float(found.total) == pytest.approx(sum(float(one[term].total) for one in each), rel=1e-5)
        assert np.isfinite(float(found.total))
    assert objective.counts(batch) == {
        term: sum(objective.counts(one)[term] for one in alone) for term in objective.term_weights
    }


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_guess_is_a_sum_over_each_term_s_items(name) -> None:
    """A uniform guess is `count` times log V for tokens, and no more than log 2 for a yes or no."""
    objective = make_objective(name)
    batch = batch_for(objective, [mixed(n, n) for n in LENGTHS])
    guesses, counts = objective.guesses(batch, np.full(120, np.log(120))), objective.counts(batch)
    assert guesses.keys() == counts.keys()
    for term, guess in guesses.items():
        if term in ("next-sentence", "sentence-order"):
            assert guess == pytest.approx(counts[term] * np.log(2))
        elif term in ("teacher", "cosine"):
            assert np.isnan(guess)  # nothing is known of them without the teacher
        elif term == "skip-gram":  # all words are as frequent: of each pair's true word and negatives one is true
            drawn = int((batch["negatives"] >= 0).sum())
            assert guess == pytest.approx(counts[term] * np.log(6) + drawn * np.log(6 / 5))
        elif term == "replaced-token":
            assert 0 < guess < counts[term] * np.log(2)
        else:
            assert guess == pytest.approx(counts[term] * np.log(120))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_term_teaches_the_exported_model_or_what_stands_beside_it(name) -> None:
    objective = make_objective(name)
    module = model_for(objective)
    batch = batch_for(objective, [mixed(n, n) for n in LENGTHS])
    terms = objective.loss(module, batch, batch.noise)
    sum(term.total for term in terms.values()).backward()
    unused = [name for name, p in module.named_parameters() if p.grad is None and p.requires_grad]
    assert unused == []
    assert any(p.grad.any() for p in objective.exported(module).parameters())


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@torch.no_grad()
def test_a_text_with_nothing_in_it_is_allowed_beside_others(name, options, models) -> None:
    """[CLS] [SEP], one token, and a text: the loss is finite, and that of the text is what it is alone."""
    objective = make_objective(name, **options)
    module = models[objective.layout]
    short = [framed(), framed(10), framed(10, 11), framed(1)]
    batch = batch_for(objective, [mixed(20), *short])
    found = objective.loss(module, batch, batch.noise)
    each = [batch_for(objective, [text], [number]) for number, text in enumerate([mixed(20), *short])]
    alone = [objective.loss(module, one, one.noise) for one in each if objective.counts(one)]
    for term, one in found.items():
        assert one.count == objective.counts(batch)[term]
        assert float(one.total) == pytest.approx(sum(float(other[term].total) for other in alone), rel=1e-5)
    if objective.metrics[1:] and not objective.needs_translation:
        (answers,) = objective.answers(module, batch, batch.noise).values()
        assert len(answers.scores) == len(answers.truth) == len(answers.example)


@pytest.mark.parametrize("name", [n for n in OBJECTIVES if OBJECTIVES[n]().num_sentinels(9) == 0])
def test_no_sentinels_are_asked_for_where_none_are_needed(name) -> None:
    objective = make_objective(name)
    found = objective.corrupt(example_for(objective, mixed(9)), stream("none"), vocabulary(sentinels=()))
    assert len(found.selected) == len(found.input_ids) > 0


MASKLESS = vocabulary(mask=None)
NEED_MASK = ["masked-lm", "masked-lm-nsp", "masked-lm-sop", "spanbert", "electra", "mass", "bart", "distillation"]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_vocabulary_without_a_mask_is_refused_by_those_that_hide_under_their_own_name(name) -> None:
    objective = make_objective(name)
    example = example_for(objective, distinct(20))
    if name in NEED_MASK:
        with pytest.raises(UserError, match=f"^{name} needs a mask token"):
            objective.corrupt(example, stream("mask"), MASKLESS)
    else:
        objective.corrupt(example, stream("mask"), MASKLESS)


@pytest.mark.parametrize("name", [n for n in OBJECTIVES if OBJECTIVES[n].reads != "pair"])
def test_two_texts_are_refused_by_those_that_read_one(name) -> None:
    objective = make_objective(name)
    with pytest.raises(UserError, match="reads one text"):
        objective.corrupt(Example(texts=(mixed(5), mixed(5))), stream("two"), VOCABULARY)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_noise_of_evaluation_is_noise_of_training_but_for_dropout(name) -> None:
    objective = make_objective(name)
    assert objective.for_evaluation() == objective
    assert 0 < objective.predicted_share <= 1
