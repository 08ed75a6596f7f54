"""The prefix LM of one stack: its mask by brute force, no leak, and its loss."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import VOCABULARY, check_pure, corrupted, distinct, mixed
from scipy.stats import chisquare

from infoflow.architectures import ModelConfig, build
from infoflow.objectives import Example, PrefixDecoder, prefix_mask

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64)


def model(attention: str = "eager"):
    module = build("bert", "decoder", SHAPE, VOCABULARY).eval()
    module.set_attn_implementation(attention)
    return module


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 60), st.integers(0, 10**6))
def test_what_follows_the_prefix_is_predicted(length, seed) -> None:
    tokens = mixed(length, seed)
    result = check_pure(PrefixDecoder(), Example(texts=(tokens,)), seed)
    prefix = int(result["prefix"])  # [CLS] counts
    assert (2 if length > 1 else 1) <= prefix <= max(length, 1)
    expected = [int(tokens[t + 1]) if prefix <= t + 1 < len(tokens) else -100 for t in range(len(tokens))]
    assert result.labels.tolist() == expected
    assert np.array_equal(result.input_ids, tokens)


def test_prefixes_are_uniform() -> None:
    found = Counter(int(one["prefix"]) - 1 for one in corrupted(PrefixDecoder(), distinct(9), 3000))
    assert set(found) == set(range(1, 9))
    assert chisquare(list(found.values())).pvalue > 1e-3


def test_the_mask_equals_brute_force() -> None:
    prefixes, length = [1, 3, 7], 7
    mask = prefix_mask(torch.tensor(prefixes), length)
    assert mask.is_floating_point()
    for row, prefix in enumerate(prefixes):
        for query in range(length):
            for key in range(length):
                seen = key <= query or key < prefix
                assert float(mask[row, 0, query, key]) == (0.0 if seen else torch.finfo(torch.float32).min)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_each_state_follows_from_what_it_may_see(attention) -> None:
    """A token that a position may not see changes nothing there; one that it may see does."""
    module, length, prefix = model(attention), 8, 4
    ids = torch.arange(10, 10 + length)[None]
    mask = prefix_mask(torch.tensor([prefix]), length)

    def logits(tokens: torch.Tensor) -> torch.Tensor:
        states = module.bert(input_ids=tokens, attention_mask=mask, use_cache=False).last_hidden_state
        return module.cls(states)[0]

    clean = logits(ids)
    for key in range(length):
        changed = ids.clone()
        changed[0, key] = 50
        moved = (logits(changed) - clean).abs().amax(-1) > 1e-6
        assert moved.tolist() == [key <= query or (key < prefix) for query in range(length)]


@torch.no_grad()
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_loss_equals_a_computation_without_padding_with_a_mask_of_its_own(attention) -> None:
    objective, module = PrefixDecoder(), model(attention)
    examples = [corrupted(objective, mixed(n, n), 1)[0] for n in (20, 7, 33, 2, 1, 0)]
    batch = objective.collate(examples, VOCABULARY)
    expected, count = 0.0, 0
    reference = model("eager")
    for one in examples:
        length, prefix = len(one.input_ids), int(one["prefix"])
        mask = torch.full((1, 1, length, length), -1e9)
        for query in range(length):
            for key in range(length):
                if key <= query or key < prefix:
                    mask[0, 0, query, key] = 0.0
        ids = torch.tensor(one.input_ids[None])
        log_p = reference(input_ids=ids, attention_mask=mask, use_cache=False).logits[0].double().log_softmax(-1)
        for place in range(prefix - 1, length - 1):
            expected, count = expected - float(log_p[place, ids[0, place + 1]]), count + 1
    term = objective.loss(module, batch, batch.noise)["prefix-lm-decoder"]
    assert term.count == count == batch.supervised_tokens == objective.counts(batch)["prefix-lm-decoder"]
    assert float(term.total) == pytest.approx(expected, rel=1e-5)
