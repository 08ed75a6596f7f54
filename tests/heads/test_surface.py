import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.foundation import UserError
from infoflow.heads import attention_entropy, confidence, offset_scores


def attention(*shape, seed=0):
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.softmax(2 * scores, dim=-1)


def example(seed=0, lengths=(7, 4, 1)):
    layers, heads, tokens = 2, 3, max(lengths)
    valid = torch.zeros(len(lengths), tokens, dtype=torch.bool)
    for row, length in enumerate(lengths):
        valid[row, :length] = True
    valid[0, 3] = False  # an excluded token inside
    return attention(layers, len(lengths), heads, tokens, tokens, seed=seed), valid


def rows_one_by_one(weights, valid):
    """Yield (layer, head, sentence, query, keys) of every row that counts."""
    num_layers, num_sentences, num_heads, *_ = weights.shape
    for layer in range(num_layers):
        for head in range(num_heads):
            for b in range(num_sentences):
                keys = [j for j in range(valid.shape[1]) if valid[b, j]]
                for i in keys:
                    yield layer, head, b, i, keys


def mean_per_head(weights, scores):
    table = [[[] for _ in range(weights.shape[2])] for _ in range(weights.shape[0])]
    for layer, head, score in scores:
        table[layer][head].append(score)
    return torch.tensor([[float(np.mean(cell)) if cell else math.nan for cell in row] for row in table]).double()


def confidence_by_definition(weights, valid):
    return mean_per_head(
        weights,
        (
            (layer, head, max(float(weights[layer, b, head, i, j]) for j in keys))
            for layer, head, b, i, keys in rows_one_by_one(weights, valid)
        ),
    )


def entropy_by_definition(weights, valid):
    def row(layer, head, b, i, keys):
        values = [float(weights[layer, b, head, i, j]) for j in keys]
        return -sum(a * math.log(a) for a in values if a > 0)

    return mean_per_head(weights, ((r[0], r[1], row(*r)) for r in rows_one_by_one(weights, valid)))


def offset_by_definition(weights, valid, offset, denominator):
    def rows():
        for layer, head, b, i, keys in rows_one_by_one(weights, valid):
            if denominator == "valid" and i + offset not in keys:
                continue
            values = [float(weights[layer, b, head, i, j]) for j in keys]
            yield layer, head, float(keys[values.index(max(values))] == i + offset)

    return mean_per_head(weights, rows())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(1, 7), min_size=1, max_size=3))
def test_agree_with_definitions(seed, lengths):
    weights, valid = example(seed, (7, *lengths))
    torch.testing.assert_close(confidence(weights, valid), confidence_by_definition(weights, valid), check_dtype=False)
    torch.testing.assert_close(
        attention_entropy(weights, valid), entropy_by_definition(weights, valid), check_dtype=False
    )
    for denominator in ("valid", "all"):
        scores = offset_scores(weights, valid, offsets=(-1, 0, 2), denominator=denominator)
        for index, offset in enumerate((-1, 0, 2)):
            expected = offset_by_definition(weights, valid, offset, denominator)
            torch.testing.assert_close(scores[..., index], expected, check_dtype=False)


@pytest.mark.parametrize("measure", [confidence, attention_entropy, offset_scores])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(measure, side):
    weights, valid = example(lengths=(5,))
    pad = (2, 0) if side == "left" else (0, 2)
    # A padding row may hold anything, NaN included.
    padded = torch.nn.functional.pad(weights, (*pad, *pad), value=math.nan)
    real = torch.nn.functional.pad(torch.ones(1, 5, dtype=torch.bool), pad)
    padded[..., real[0], :] = padded[..., real[0], :].nan_to_num(0)
    mask = torch.nn.functional.pad(valid, pad)
    torch.testing.assert_close(measure(padded, mask), measure(weights, valid))


@pytest.mark.parametrize("measure", [confidence, attention_entropy, offset_scores])
def test_precision_is_kept_and_numpy_taken(measure):
    weights, valid = example()
    single = measure(weights.float(), valid)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), measure(weights, valid), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(measure(weights.numpy(), valid.numpy()), measure(weights, valid))


def test_nothing_valid_gives_nan():
    weights, valid = example()
    nothing = torch.zeros_like(valid)
    for measure in (confidence, attention_entropy, offset_scores):
        assert measure(weights, nothing).isnan().all()


def test_uniform_and_sharp_heads():
    valid = torch.ones(1, 8, dtype=torch.bool)
    uniform = torch.full((1, 1, 1, 8, 8), 1 / 8)
    assert confidence(uniform, valid).item() == pytest.approx(1 / 8)
    assert attention_entropy(uniform, valid).item() == pytest.approx(math.log(8))
    sharp = torch.eye(8)[None, None, None]
    assert confidence(sharp, valid).item() == 1
    assert attention_entropy(sharp, valid).item() == 0


def test_excluded_weight_is_not_renormalised():
    """A head that gives .9 to an excluded token is not confident."""
    weights = torch.tensor([[0.9, 0.06, 0.04]]).expand(3, 3)[None, None, None]
    valid = torch.tensor([[False, True, True]])
    assert confidence(weights, valid).item() == pytest.approx(0.06)
    expected = -0.06 * math.log(0.06) - 0.04 * math.log(0.04)
    assert attention_entropy(weights, valid).item() == pytest.approx(expected, rel=1e-6)


def test_perfect_previous_token_head():
    """All eight queries count in "all", though the first has no previous token: 7/8."""
    weights = torch.eye(8).roll(-1, 1)[None, None, None]
    valid = torch.ones(1, 8, dtype=torch.bool)
    torch.testing.assert_close(offset_scores(weights, valid, (-1,)), torch.ones(1, 1, 1))
    torch.testing.assert_close(offset_scores(weights, valid, (-1,), "all"), torch.full((1, 1, 1), 7 / 8))


@pytest.mark.parametrize(
    ("weights", "valid", "message"),
    [
        (torch.ones(1, 1, 3, 3), torch.ones(1, 3), "attention must have shape"),
        (torch.ones(1, 1, 1, 3, 4), torch.ones(1, 3), "as many queries as keys"),
        (torch.ones(1, 2, 1, 3, 3), torch.ones(1, 3), r"valid must have shape \(batch, token\), 2 by 3"),
    ],
)
def test_wrong_shapes_are_named(weights, valid, message):
    with pytest.raises(UserError, match=message):
        confidence(weights, valid)


@pytest.mark.parametrize("measure", [confidence, attention_entropy, offset_scores])
def test_layers_may_come_one_by_one_reversed_or_with_a_gradient(measure):
    weights, valid = example()
    expected = measure(weights, valid)
    torch.testing.assert_close(measure(tuple(weights), valid), expected)
    torch.testing.assert_close(measure([layer.numpy() for layer in weights], valid), expected)
    torch.testing.assert_close(measure(weights.clone().requires_grad_(), valid), expected)
    flipped = weights.numpy()[:, ::-1], valid.numpy()[::-1]
    torch.testing.assert_close(measure(*flipped), expected)


@pytest.mark.parametrize("layers", [(), (torch.ones(1, 2, 3, 3), torch.ones(1, 2, 4, 4))])
def test_layers_that_do_not_stack_are_named(layers):
    with pytest.raises(UserError, match="one array of shape"):
        confidence(layers, torch.ones(1, 3))


def test_no_layers_and_no_tokens_are_refused():
    for shape in ((0, 1, 2, 3, 3), (1, 1, 2, 0, 0)):
        with pytest.raises(UserError, match="attention must have shape"):
            confidence(torch.ones(shape), torch.ones(1, shape[-1]))
