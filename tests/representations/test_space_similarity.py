"""The grid of layer pairs: its values are the functions', its error bars those of leaving sentences out."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.flow import Occurrences, SampleFacts, TokenSample
from infoflow.foundation import UserError, block_of, stream
from infoflow.representations import (
    BlockGroups,
    ItemPairs,
    LayerPair,
    LayerSpace,
    RankedSpace,
    SpaceSimilarity,
    cca_correlations,
    centred_ranks,
    linear_cka,
    minibatch_cka,
    procrustes_distance,
    pwcca,
    rsa,
    space_values,
    svcca,
)

FUNCTIONS = {
    "pwcca": pwcca,
    "svcca": svcca,
    "cca": lambda x, y: float(cca_correlations(x, y).mean()),
    "cka": linear_cka,
    "cka_debiased": lambda x, y: linear_cka(x, y, debiased=True),
    "procrustes": procrustes_distance,
    "rsa": rsa,
}
METRICS = ("rsa", "pwcca", "svcca", "cca", "cka", "cka_debiased", "cka_minibatch", "procrustes")


def make_states(num, widths, seed=0, sentence_length=10):
    """Layers of two models that see one signal, each through its own map and noise; sentences have themes."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(99)
    sentence = np.arange(num) // sentence_length
    signal = rng.standard_t(6, size=(num, 6)) + rng.normal(size=(num // sentence_length + 1, 6))[sentence]
    layers = []
    for width in widths:
        maps = fixed.normal(size=(3, 6, width)) * np.linspace(0.3, 2, width)
        noise = rng.normal(size=(3, num, width)) * np.array([0.3, 1, 2])[:, None, None]
        layers.append((signal @ maps + noise + 1).astype(np.float32))
    return sentence, layers


def sample_of(states, sentence, model="model", tokenizer="words"):
    nothing = np.zeros(len(sentence), dtype=np.int64)
    at = Occurrences(
        sentence=sentence, row=sentence, position=np.arange(len(sentence)), token=nothing, label=nothing,
        previous=nothing, next=nothing, word=np.arange(len(sentence)), draw=nothing, subword=nothing,
        subwords=nothing + 1, word_type=nothing,
    )  # fmt: skip
    facts = SampleFacts(
        model=model, stack="encoder", regime="clean", task="masked-lm", seed=0, tokenizer=tokenizer,
        frequencies=np.ones(1, dtype=np.int64), ranks=np.ones(1, dtype=np.int64),
    )  # fmt: skip
    return TokenSample(at, states, facts)


def make_pair(num=600, widths=(8, 5), seed=0):
    sentence, (first, second) = make_states(num, widths, seed)
    return sample_of(first, sentence, "one"), sample_of(second[:2], sentence, "two")


@pytest.fixture(scope="module")
def pair():
    return make_pair()


@pytest.fixture(scope="module")
def frame(pair):
    measure = SpaceSimilarity(metrics=METRICS, items=200)
    return measure.table.conform(measure.compute(*pair))


def cell(frame, metric, a, b):
    return frame[(frame["metric"] == metric) & (frame["layer_a"] == a) & (frame["layer_b"] == b)].iloc[0]


@pytest.mark.parametrize("metric", FUNCTIONS)
def test_each_cell_is_the_function_of_its_two_layers(pair, frame, metric):
    first, second = (sample.first(200) for sample in pair) if metric == "rsa" else pair
    for a in range(3):
        for b in range(2):
            expected = FUNCTIONS[metric](first.states(a), second.states(b))
            assert cell(frame, metric, a, b)["value"] == pytest.approx(expected, abs=2e-6)


def test_the_table_is_the_whole_grid(frame):
    assert frame["metric"].drop_duplicates().tolist() == list(METRICS)
    for _, own in frame.groupby("metric"):
        assert own[["layer_a", "layer_b"]].to_numpy().tolist() == [[a, b] for a in range(3) for b in range(2)]
    assert frame["count"].where(frame["metric"] != "rsa", 600).eq(600).all()
    assert frame.loc[frame["metric"] == "rsa", "count"].eq(200).all()
    assert frame[["width_a", "width_b"]].drop_duplicates().to_numpy().tolist() == [[8, 5]]
    assert (frame["low"] < frame["value"]).all()
    assert (frame["value"] < frame["high"]).all()
    assert frame["replicates"].map(len).eq(200).all()


@pytest.mark.parametrize("metric", FUNCTIONS)
def test_the_baseline_is_the_function_of_shuffled_rows(pair, frame, metric):
    first, second = pair
    if metric == "rsa":
        first, second = first.first(200), second.first(200)
    key = "rsa-baseline" if metric == "rsa" else "similarity-baseline"
    order, in_groups = stream(key).permutation(len(first)), np.argsort(first.blocks, kind="stable")
    expected = FUNCTIONS[metric](first.states(1)[in_groups], second.states(1)[in_groups][order])
    assert cell(frame, metric, 1, 1)["baseline"] == pytest.approx(expected, abs=2e-6)


def test_minibatches_are_the_groups_of_blocks(pair, frame):
    first, second = pair
    batches = [first.blocks == block for block in np.unique(first.blocks)]
    expected = minibatch_cka((first.states(2)[rows], second.states(1)[rows]) for rows in batches)
    assert cell(frame, "cka_minibatch", 2, 1)["value"] == pytest.approx(expected, abs=2e-6)


def leave_out(statistic, x, y, blocks):
    """The statistic of all rows, then without each block: everything computed anew."""
    return np.array([statistic(x[rows], y[rows]) for rows in [blocks >= 0, *(blocks != block for block in range(64))]])


@pytest.mark.parametrize(
    ("metric", "tolerance"),
    [("rsa", 0.02), ("cca", 0.05), ("svcca", 0.15), ("cka", 0.02), ("cka_debiased", 0.02), ("procrustes", 0.02)],
)
def test_leaving_a_group_out_is_followed_to_first_order(metric, tolerance):
    sentence, (first, second) = make_states(3000, (8, 5), seed=3)
    x, y = first[1], second[2]
    if metric == "rsa":
        x, y, sentence = x[:700], y[:700], sentence[:700]
    groups = BlockGroups.of(block_of(sentence), 8)
    if metric == "rsa":
        pairs, order = ItemPairs(groups), groups.order.numpy()
        found = RankedSpace(centred_ranks(x[order]), pairs).values(RankedSpace(centred_ranks(y[order]), pairs))
    else:
        found = space_values(metric, LayerPair.of(LayerSpace(x, groups), LayerSpace(y, groups)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = leave_out(FUNCTIONS[metric], x, y, block_of(sentence))
    assert found[0] == pytest.approx(exact[0], abs=1e-6)
    effects, expected = found[1:] - found[0], exact[1:] - exact[0]
    assert np.corrcoef(effects, expected)[0, 1] > 1 - tolerance
    assert effects.std() / expected.std() == pytest.approx(1, abs=2 * tolerance + 0.03)


def test_weights_of_distinct_correlations_are_followed_too():
    """PWCCA where every correlation keeps its place: one signal of falling strength per dimension."""
    rng = np.random.default_rng(0)
    sentence = np.arange(20_000) // 10
    signal = rng.normal(size=(20_000, 4))
    noise = np.array([0.2, 0.7, 1.5, 4])
    x = ((signal + 0.1 * rng.normal(size=signal.shape)) @ rng.normal(size=(4, 4))).astype(np.float32)
    y = ((signal + noise * rng.normal(size=signal.shape)) @ rng.normal(size=(4, 5))).astype(np.float32)
    groups = BlockGroups.of(block_of(sentence), 8)
    found = space_values("pwcca", LayerPair.of(LayerSpace(x, groups), LayerSpace(y, groups)))
    exact = leave_out(pwcca, x, y, block_of(sentence))
    assert found[0] == pytest.approx(exact[0], abs=1e-6)
    assert np.corrcoef(found[1:], exact[1:])[0, 1] > 0.99
    assert np.std(found[1:]) / np.std(exact[1:]) == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_intervals_are_as_wide_as_fresh_samples_scatter():
    """Measured over 80 samples of 1,000: 0.85 (mean CCA) to 1.1; 40 samples know a scatter to a tenth.

    SVCCA jumps where a sample needs one component more for its 99%, which its bars do not see.
    """
    frames = []
    for seed in range(40):
        sentence, states = make_states(700, (8, 5), seed)
        first, second = (sample_of(layers[1:2], sentence) for layers in states)
        frames.append(SpaceSimilarity(metrics=METRICS, items=200).compute(first, second))
    for metric, own in pd.concat(frames).groupby("metric"):
        told = np.sqrt(np.mean([np.var(replicates) for replicates in own["replicates"]]))
        assert (0.5 if metric == "svcca" else 0.65) < told / own["value"].std() < 1.45, metric


def test_replicates_of_related_metrics_are_paired(frame):
    plain, debiased, batches, angle = (
        np.array(cell(frame, metric, 1, 1)["replicates"])
        for metric in ("cka", "cka_debiased", "cka_minibatch", "procrustes")
    )
    assert np.corrcoef(plain, debiased)[0, 1] > 0.99
    assert np.corrcoef(plain, batches)[0, 1] > 0.3
    assert np.corrcoef(plain, angle)[0, 1] < -0.6


def test_a_model_is_the_same_as_itself(pair):
    frame = SpaceSimilarity(metrics=METRICS, items=100).compute(pair[0], pair[0])
    same = frame[frame["layer_a"] == frame["layer_b"]]
    best = same["metric"].eq("procrustes").map({True: 0.0, False: 1.0})
    # An arc cosine turns an error of 1e-7 into one of 4e-4.
    np.testing.assert_allclose(same["value"], best, atol=1e-3)
    assert (same["high"] - same["low"] < 1e-3).all()


def test_wide_states_leave_out_groups_of_blocks(pair):
    sentence, (first, second) = make_states(700, (300, 4))
    with pytest.warns(UserWarning, match="700 words in 300 dimensions"):
        frame = SpaceSimilarity(metrics=("pwcca", "cka", "procrustes")).compute(
            sample_of(first[:1], sentence), sample_of(second[:1], sentence)
        )
    for metric, value in zip(frame["metric"], frame["value"], strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert value == pytest.approx(FUNCTIONS[metric](first[0], second[0]), abs=1e-5)


def test_fewer_words_than_dimensions_are_warned_about_with_the_baseline():
    sentence, (first, second) = make_states(40, (60, 50))
    one, two = sample_of(first, sentence), sample_of(second, sentence)
    with (
        pytest.warns(UserWarning, match=r"40 words in 60 dimensions .*cka 0\.\d\d\)\. Use at least 600"),
        pytest.warns(UserWarning, match="PWCCA of 40 tokens in 60 dimensions .* it is near 1"),
    ):
        frame = SpaceSimilarity(metrics=("pwcca", "cka", "cka_debiased")).compute(one, two)
    assert frame.loc[frame["metric"] == "pwcca", ["value", "baseline"]].isna().all(axis=None)
    chance = frame.groupby("metric")["baseline"].mean()
    assert chance["cka"] > 0.1
    assert abs(chance["cka_debiased"]) < 0.05


def test_unbiased_metrics_are_not_warned_about(recwarn):
    sentence, (first, second) = make_states(40, (60, 50))
    metrics = ("rsa", "cka_debiased", "procrustes")
    SpaceSimilarity(metrics=metrics).compute(sample_of(first, sentence), sample_of(second, sentence))
    assert not recwarn.list


def test_a_constant_layer_is_named_and_has_no_similarity():
    sentence, (first, second) = make_states(300, (8, 5))
    first[1] = 0.1
    one, two = sample_of(first, sentence, "dull"), sample_of(second[:1], sentence)
    with pytest.warns(UserWarning, match="Layer 1 of dull is the same for all 300"):
        frame = SpaceSimilarity(metrics=METRICS).compute(one, two)
    unknown = frame["layer_a"] == 1
    assert frame.loc[unknown, ["value", "low", "high", "baseline"]].isna().all().all()
    assert frame.loc[~unknown, ["value", "low", "high", "baseline"]].notna().all().all()


def test_a_vector_without_direction_costs_its_layer_the_rsa_only():
    sentence, (first, second) = make_states(300, (8, 5))
    second[1, 7] = 0
    one, two = sample_of(first, sentence), sample_of(second[:2], sentence, "holey")
    with pytest.warns(UserWarning, match="Layer 1 of holey has no RSA: 1 rows have no direction"):
        frame = SpaceSimilarity(metrics=("rsa", "cka")).compute(one, two)
    assert frame["value"].isna().tolist() == [False, True] * 3 + [False] * 6


def test_duplicates_and_dependent_columns_change_nothing(pair):
    first, second = pair
    states = np.stack([first.states(layer) for layer in range(2)])
    doubled = np.concatenate([states, states[..., :3], states[..., :1] - states[..., 1:2]], axis=2)
    wide = TokenSample(first.occurrences, doubled, first.facts)
    found = SpaceSimilarity(metrics=("cca",)).compute(wide, second)["value"]
    expected = [float(cca_correlations(doubled[a], second.states(b)).mean()) for a in range(2) for b in range(2)]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_repeated_words_tie_in_rsa():
    """Layer 0 of a model without positions: many words have the same vector."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 12, 300)
    table = rng.normal(size=(12, 6)).astype(np.float32)
    x, y = table[kind], (table[kind] + rng.normal(size=(300, 6))).astype(np.float32)
    sentence = np.arange(300) // 3
    groups = BlockGroups.of(block_of(sentence), 6)
    pairs, order = ItemPairs(groups), groups.order.numpy()
    ranked = [RankedSpace(centred_ranks(view[order]), pairs) for view in (x, y)]
    found, exact = ranked[0].values(ranked[1]), leave_out(rsa, x, y, block_of(sentence))
    assert found[0] == pytest.approx(exact[0], abs=1e-9)
    assert np.corrcoef(found[1:], exact[1:])[0, 1] > 0.97
    assert np.std(found[1:]) / np.std(exact[1:]) == pytest.approx(1, abs=0.1)


def test_pairs_of_items_know_their_groups_and_places():
    blocks = np.random.default_rng(0).integers(0, 64, 30)
    groups = BlockGroups.of(blocks, 3)
    pairs = ItemPairs(groups)
    group = np.sort(blocks)
    row, column = np.triu_indices(30, 1)
    values = np.random.default_rng(1).normal(size=len(row))
    expected = [values[(group[row] == g) | (group[column] == g)].sum() for g in range(64)]
    np.testing.assert_allclose(pairs.sums(values), expected)
    order = np.random.default_rng(2).permutation(30)
    square = np.zeros((30, 30))
    square[row, column] = square[column, row] = values
    np.testing.assert_array_equal(values[pairs.under(order)], square[np.ix_(order, order)][row, column])


def test_a_handful_of_words_is_refused(pair):
    with pytest.raises(UserError, match=r"at least 4 words\. The sample of one has 3"):
        SpaceSimilarity().compute(pair[0].first(3), pair[1].first(3))


def test_results_do_not_depend_on_threads_or_repetition(pair):
    first, again = (SpaceSimilarity(items=100).compute(*pair) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert torch.get_num_threads() == 1
