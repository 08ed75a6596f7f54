"""Sign flips against all 2^n signs, the paired bootstrap and corrections against their definitions."""

from itertools import product

import numpy as np
import pytest

from infoflow.foundation import NUM_BLOCKS, replicate_weights, stream
from infoflow.heads import VariantScores, ablation

PERMUTATIONS = 20_000


def sign_flip_p(differences):
    """Of losses that differ from those of the whole model by these sums in each block."""
    open_K = np.ones(differences.shape[1])
    sums_VK = np.concatenate([open_K[None], open_K + differences])
    return scores("loss", sums_VK).p_values()


def scores(metric, sums_VK):
    return VariantScores(metric=metric, sums_VKS=sums_VK[:, :, None], score=lambda sums: sums[..., 0], num_sentences=1)


def test_sign_flips_agree_with_all_signs():
    rng = stream("significance-test")
    differences = rng.normal(size=(5, 10)) + np.array([0, 0.3, 0.6, 1.0, -2.0])[:, None]
    signs = np.array(list(product((-1, 1), repeat=10)))
    for row, p in zip(differences, sign_flip_p(differences), strict=True):
        exact = (np.abs(signs @ row) >= np.abs(row.sum()) - 1e-12).mean()
        assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / PERMUTATIONS) + 2 / PERMUTATIONS)


def test_no_difference_at_all_is_not_significant_and_a_constant_one_is():
    zero, constant = sign_flip_p(np.stack([np.zeros(64), np.full(64, 0.1)]))
    assert zero == 1
    assert constant == 1 / (1 + PERMUTATIONS)


def test_a_metric_without_a_value_has_no_p_value():
    lost, other = sign_flip_p(np.stack([np.r_[np.nan, np.zeros(63)], np.full(64, 0.1)]))
    assert np.isnan(lost)
    assert other == 1 / (1 + PERMUTATIONS)


def test_p_values_of_noise_are_uniform():
    noise = stream("significance-noise").normal(size=(400, 64))
    p = sign_flip_p(noise)
    for level in (0.05, 0.25, 0.5):
        assert (p < level).mean() == pytest.approx(level, abs=0.05)


@pytest.mark.parametrize("correction", ["holm", "bh", "none"])
def test_holm_and_benjamini_hochberg_follow_their_definitions(matched_models, parallel_corpus, correction):
    table = ablation(matched_models["masked-lm"], parallel_corpus.select(range(8)), correction=correction)
    p = table["p"].to_numpy(float)
    order, num = np.argsort(p, kind="stable"), len(p)
    assert len(set(p.tolist())) > 3
    if correction == "none":
        expected = p
    elif correction == "holm":
        expected = [max(min(1, (num - i) * p[order[i]]) for i in range(num) if p[order[i]] <= one) for one in p]
    else:
        expected = [min(min(1, num / (i + 1) * p[order[i]]) for i in range(num) if p[order[i]] >= one) for one in p]
    np.testing.assert_allclose(table["p_corrected"].to_numpy(float), expected)


def test_paired_bootstrap_counts_the_other_side():
    rng = stream("paired-bootstrap-test")
    sums_VK = rng.normal(size=(4, NUM_BLOCKS)) + np.array([0, 0.05, 0.2, -2.0])[:, None]
    weights_RK = replicate_weights(num=1000)
    expected = []
    for variant in sums_VK[1:]:
        drawn = [float(weights @ (variant - sums_VK[0])) for weights in weights_RK]
        beyond = min(sum(one <= 0 for one in drawn), sum(one >= 0 for one in drawn))
        expected.append(min(1, 2 * (1 + beyond) / 1001))
    np.testing.assert_allclose(scores("bleu", sums_VK).p_values(), expected)
    assert expected[-1] == 2 / 1001
