"""Skip-gram: which words stay, windows, negatives, the loss, against loops and numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import SPECIAL, VOCABULARY, check_pure, corrupted, framed, mixed, vocabulary
from scipy.stats import chisquare

from infoflow.architectures import ModelConfig, build
from infoflow.foundation import UserError, stream
from infoflow.objectives import Example, Noise, SkipGram, keep_probability

SHAPE = ModelConfig(width=16, layers=1, heads=2, feedforward=32, positions=64)
COUNTS = np.arange(120) + 1  # of the zoo's vocabulary


def model(seed: int = 0):
    module = build("bert", "static", SHAPE, VOCABULARY, seed=seed).eval()
    with torch.no_grad():
        module.output_embeddings.weight.normal_(generator=torch.Generator().manual_seed(seed))
        module.input_embeddings.weight.normal_(generator=torch.Generator().manual_seed(seed + 1))
    return module


def batch_of(objective: SkipGram, texts):
    examples = [
        objective.corrupt(Example(texts=(text,)), stream("pairs", n), VOCABULARY) for n, text in enumerate(texts)
    ]
    return objective.collate(
        examples, VOCABULARY, noise=Noise(tuple(("pairs", n) for n in range(len(texts))))
    ), examples


def explicit(objective: SkipGram, tokens: np.ndarray, generator: np.random.Generator) -> list[tuple]:
    """word2vec, word by word, from the same draws."""
    frequent = {i: int(c) for i, c in enumerate(COUNTS) if c >= objective.min_count and i not in SPECIAL}
    total, power = sum(frequent.values()), sum(c**0.75 for c in frequent.values())
    words = []
    for token, draw in zip(tokens.tolist(), generator.random(len(tokens)), strict=True):
        if token not in frequent:
            continue
        f, t = frequent[token] / total, objective.threshold
        if draw < (math.sqrt(f / t) + 1) * t / f:
            words.append(token)
    halves = generator.integers(1, objective.window + 1, size=len(words))
    pairs = []
    for i, center in enumerate(words):
        for j, context in enumerate(words):
            if i != j and abs(i - j) <= halves[i]:
                pairs.append((center, context))
    result = []
    for (center, context), draws in zip(pairs, generator.random((len(pairs), objective.negatives)), strict=True):
        negatives = []
        for draw in draws.tolist():
            reached, word = 0.0, -1
            for candidate, count in frequent.items():
                reached, word = reached + count**0.75 / power, candidate
                if draw < reached:
                    break
            negatives.append(-100 if word == context else word)
        result.append((center, context, *negatives))
    return result


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 30), st.integers(0, 10**6), st.sampled_from([1e-3, 1e-2, 1.0]), st.integers(1, 5))
def test_pairs_are_those_of_an_explicit_loop(length, seed, threshold, window) -> None:
    objective = SkipGram(threshold=threshold, window=window, min_count=30)
    tokens = mixed(length, seed)
    found = check_pure(objective, Example(texts=(tokens,)), seed)
    rows = np.column_stack([found["centers"], found.labels, found["negatives"]]).tolist()
    assert [tuple(row) for row in rows] == explicit(objective, tokens, stream("pure", seed))
    assert found["negatives"].shape == (len(found["centers"]), 5)


def test_the_probability_of_staying_is_word2vec_s() -> None:
    """Worked out by hand for t = 1e-3: f = t (2, so 1), 4 t (3/4), 100 t (.11), 10,000 t, all of the text (.0326)."""
    found = keep_probability(np.array([1e-3, 4e-3, 0.1, 1.0]), 1e-3)
    assert found == pytest.approx([1.0, 0.75, 0.11, 0.0326227766])
    assert keep_probability(np.array([1e-5, 4e-5, 1e-3]), 1e-5, "paper") == pytest.approx([1.0, 0.5, 0.1])


def test_words_stay_as_often_as_they_should_and_rare_and_special_ones_never() -> None:
    objective, tokens = SkipGram(min_count=20), framed(10, 30, 50, 70, 89)
    results = corrupted(objective, tokens, 4000)
    total = sum(int(c) for i, c in enumerate(COUNTS) if c >= 20 and i not in SPECIAL)
    shares = np.mean([one.selected for one in results], axis=0)
    assert shares[[0, 1, -1]].tolist() == [0, 0, 0]  # [CLS], a word with 11 occurrences, [SEP]
    for place, token in enumerate(tokens.tolist()[2:-1], start=2):
        f = (token + 1) / total
        expected = min(1.0, (math.sqrt(f / 1e-3) + 1) * 1e-3 / f)
        assert shares[place] == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 4000) ** 0.5)


def test_half_windows_are_uniform_and_stretch_over_words_that_were_left_out() -> None:
    objective = SkipGram(threshold=1.0)  # all words stay
    tokens = framed(*range(10, 31))
    reach = [
        int((one["centers"] == 20).sum()) // 2  # the word in the middle: as many on both sides
        for one in corrupted(objective, tokens, 5000)
    ]
    assert chisquare(np.bincount(reach, minlength=6)[1:]).pvalue > 1e-3
    assert min(reach) == 1
    # 31 is too rare to stay where 40 occurrences are asked for: its neighbours become each other's.
    (found,) = corrupted(SkipGram(threshold=1.0, min_count=40, window=1), framed(50, 31, 60), 1)
    assert list(zip(found["centers"].tolist(), found.labels.tolist(), strict=True)) == [(50, 60), (60, 50)]


def test_the_mean_number_of_pairs_is_the_one_of_uniform_windows() -> None:
    """Far from the edges a word has 2 · (1 + … + 5) / 5 = 6 contexts; near them what is left of these."""
    length = 40
    expected = sum(
        np.mean([min(half, place) + min(half, length - 1 - place) for half in range(1, 6)]) for place in range(length)
    )
    found = [len(one.labels) for one in corrupted(SkipGram(threshold=1.0), framed(*range(10, 50)), 1000)]
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / 1000**0.5)


def test_negatives_have_the_frequency_to_the_power_of_three_quarters_and_are_skipped_where_true() -> None:
    objective = SkipGram(threshold=1.0)
    results = corrupted(objective, framed(60, 89, 60, 89, 60, 89, 60, 89), 3000)
    words = [i for i, c in enumerate(COUNTS) if c >= 5 and i not in SPECIAL]
    power = np.array([COUNTS[i] ** 0.75 for i in words])
    power /= power.sum()
    negatives = np.concatenate([one["negatives"][one.labels == 89].ravel() for one in results])
    skipped = float((negatives == -100).mean())
    own = power[words.index(89)]
    assert skipped == pytest.approx(own, abs=4 * (own * (1 - own) / len(negatives)) ** 0.5)
    assert not (negatives == 89).any()
    observed = np.bincount(negatives[negatives >= 0], minlength=120)[words]
    others = np.array(words) != 89
    expected = power[others] / power[others].sum() * observed.sum()
    assert chisquare(observed[others], expected).pvalue > 1e-3
    assert observed.sum() == np.bincount(negatives[negatives >= 0]).sum()  # none is special or too rare


@torch.no_grad()
def test_the_loss_is_an_explicit_sum_over_pairs() -> None:
    objective, module = SkipGram(threshold=1.0), model()
    batch, examples = batch_of(objective, [mixed(12, 1), mixed(5, 2), framed()])
    found = objective.loss(module, batch, batch.noise)["skip-gram"]
    v, u = module.input_embeddings.weight.double().numpy(), module.output_embeddings.weight.double().numpy()
    total, pairs = 0.0, 0
    for one in examples:
        for center, context, negatives in zip(one["centers"], one.labels, one["negatives"], strict=True):
            total -= math.log(1 / (1 + math.exp(-u[context] @ v[center])))
            total -= sum(math.log(1 / (1 + math.exp(u[k] @ v[center]))) for k in negatives if k >= 0)
            pairs += 1
    assert float(found.total) == pytest.approx(total, rel=1e-5)
    assert found.count == objective.counts(batch)["skip-gram"] == pairs


def test_a_fresh_model_guesses_one_half_of_everything() -> None:
    objective = SkipGram()
    module = build("bert", "static", SHAPE, VOCABULARY)
    batch, _ = batch_of(objective, [mixed(30, 1)])
    found = objective.loss(module, batch, batch.noise)["skip-gram"]
    asked = found.count + int((batch["negatives"] >= 0).sum())
    assert float(found.total.detach()) == pytest.approx(asked * math.log(2), rel=1e-6)


def test_the_guess_by_frequency_is_the_best_one_that_knows_no_centers() -> None:
    """On many draws of a text whose words are as frequent as the counts say, no shift of its odds does better."""
    objective, generator = SkipGram(threshold=0.02), stream("text")
    known = np.arange(5, 90)
    shares = COUNTS[known] / COUNTS[known].sum()
    texts = [framed(*generator.choice(known, 30, p=shares)) for _ in range(200)]
    batch, _ = batch_of(objective, texts)
    unigram = np.full(120, 50.0)
    unigram[known] = -np.log(shares)
    best = objective.guesses(batch, unigram)["skip-gram"]
    centers, contexts, negatives = batch["centers"], batch.labels, batch["negatives"]
    contexts, negatives = contexts[centers >= 0].numpy(), negatives[negatives >= 0].numpy()
    true, false = np.bincount(contexts, minlength=120)[known], np.bincount(negatives, minlength=120)[known]
    fitted = -(true * np.log(true / (true + false)) + false * np.log(false / (true + false))).sum()
    assert fitted <= best <= fitted * 1.01  # the fit has 85 numbers of its own


def test_answers_are_scores_of_pairs_and_of_words_drawn_at_random() -> None:
    objective, module = SkipGram(threshold=1.0), model()
    batch, examples = batch_of(objective, [mixed(20, 1), mixed(8, 2)])
    (answers,) = objective.answers(module, batch, batch.noise).values()
    assert list(objective.answers(module, batch, batch.noise)) == [objective.metrics[0].name] == ["pair AUC"]
    assert answers.kind == "AUC"
    assert 0 < int((answers.truth == 1).sum()) <= batch.source_tokens
    assert int((answers.truth == 0).sum()) <= int((answers.truth == 1).sum())
    v, u = module.input_embeddings.weight.detach().numpy(), module.output_embeddings.weight.detach().numpy()
    for row, one in enumerate(examples):
        of_row = answers.example == row
        possible = {round(float(u[o] @ v[c]), 4) for c, o in zip(one["centers"], one.labels, strict=True)}
        assert {round(float(s), 4) for s in answers.scores[of_row & (answers.truth == 1)]} <= possible


def test_training_brings_words_of_one_theme_together() -> None:
    """Two sets of words that never share a text: vectors of one set end nearer to each other."""
    generator, objective = stream("themes"), SkipGram(threshold=1.0, min_count=1)
    texts = [framed(*generator.choice(np.arange(10, 20) + 20 * (n % 2), 8)) for n in range(200)]
    batch, _ = batch_of(objective, texts)
    module = build("bert", "static", SHAPE, VOCABULARY)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        term = objective.loss(module, batch, batch.noise)["skip-gram"]
        (term.total / term.count).backward()
        optimizer.step()
    vectors = torch.nn.functional.normalize(module.input_embeddings.weight.detach(), dim=-1)
    first, second = vectors[10:20], vectors[30:40]
    assert float((first @ first.T).mean()) > 0.5 > float((first @ second.T).mean())


def test_a_text_without_frequent_words_and_a_vocabulary_without_counts_are_refused() -> None:
    example = Example(texts=(framed(10, 11),))
    with pytest.raises(UserError, match="at least 500 times"):
        SkipGram(min_count=500).corrupt(example, stream("none"), VOCABULARY)
    with pytest.raises(UserError, match="frequency in the training text"):
        SkipGram().corrupt(example, stream("none"), vocabulary(counts=None))
