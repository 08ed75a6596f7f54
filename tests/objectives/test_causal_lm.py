"""Shifted labels, and the ablation that corrupts inputs only."""

import numpy as np
import pytest

from infoflow.foundation import stream
from infoflow.objectives import CausalLM, Example, drop_tokens

TOKENS = np.array([2, 10, 11, 12, 3])


def test_each_position_predicts_the_next_token(vocabulary) -> None:
    result = CausalLM().corrupt(Example(texts=(TOKENS,)), stream("noise"), vocabulary)
    assert result.input_ids.tolist() == [2, 10, 11, 12, 3]
    assert result.labels.tolist() == [10, 11, 12, 3, -100]
    assert not result.selected.any()


def test_token_dropout_corrupts_inputs_and_keeps_labels_clean(vocabulary) -> None:
    result = CausalLM(token_dropout=1.0).corrupt(Example(texts=(TOKENS,)), stream("noise"), vocabulary)
    assert result.labels.tolist() == [10, 11, 12, 3, -100]
    assert result.selected.tolist() == [False, True, True, True, False]
    assert result.input_ids[[0, -1]].tolist() == [2, 3]
    assert result.input_ids.tolist() != TOKENS.tolist()


def test_dropped_tokens_are_uniform_over_ordinary_ids_at_the_given_rate(vocabulary) -> None:
    tokens = np.array([2, *[7] * 20_000, 3])
    noisy, selected = drop_tokens(tokens, 0.1, stream("noise"), vocabulary)
    assert selected.mean() == pytest.approx(0.1, abs=0.01)
    assert set(noisy[selected]) == set(range(5, 50))
    assert (noisy[~selected] == tokens[~selected]).all()
