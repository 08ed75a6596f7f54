"""Closed self-attention: values alone, in every family, whatever queries, keys, padding and caches are."""

import copy

import pytest
import torch
from models.conftest import PAD, build

from infoflow.foundation import UserError
from infoflow.heads import closed_attention, self_attention_blocks
from infoflow.models import Model, load_model, model_inputs, pad_rows, start_token_id, tap

FAMILIES = ("bert", "albert", "modernbert", "gpt2", "gemma2", "marian", "t5", "encoder-decoder")
ROWS = [[5, 6, 7, 8, 9], [10, 11, 12]]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request) -> Model:
    return load_model(build(request.param))


def inputs_of(model: Model, rows: list[list[int]] = ROWS) -> dict:
    ids, mask = pad_rows(rows, model.pad_token_id)
    decoder = torch.tensor([[3, 13, 14, 15]] * len(rows)) if model.task == "seq2seq" else None
    return model_inputs(model, ids, mask, decoder_input_ids=decoder)


def every_block(model: Model) -> list:
    return [block for blocks in self_attention_blocks(model).values() for block in blocks]


def logits(model: Model, inputs: dict, blocks: list) -> torch.Tensor:
    with torch.no_grad(), closed_attention(model, blocks):
        return model.module(**inputs).logits


def test_closing_nothing_is_eager_attention(model):
    inputs = inputs_of(model)
    with torch.no_grad():
        whole = model.module(**inputs).logits
    torch.testing.assert_close(logits(model, inputs, []), whole, rtol=1e-5, atol=1e-5)


def test_queries_and_keys_mean_nothing_where_all_is_closed(model):
    """With other queries and keys, drawn at will, the closed model is the same, and the open one another."""
    other = load_model(copy.deepcopy(model.module))
    torch.manual_seed(4)
    with torch.no_grad():
        for one in other.anatomy.attentions():
            if one.kind == "self":
                assert one.query is not None
                assert one.key is not None
                for part in (*one.query.slices, *one.key.slices):
                    parameter = other.module.get_parameter(part.parameter)
                    parameter[part.mask(parameter)] = torch.randn(int(part.mask(parameter).sum()))
    inputs, blocks = inputs_of(model), every_block(model)
    torch.testing.assert_close(logits(model, inputs, blocks), logits(other, inputs, blocks), rtol=1e-5, atol=1e-5)
    assert (logits(model, inputs, []) - logits(other, inputs, [])).abs().max() > 1e-3


def test_a_token_depends_on_no_other_one_of_its_stack(model):
    first, last = model.anatomy.stacks[0], model.anatomy.stacks[-1]
    inputs, blocks = inputs_of(model, [[5, 6, 7, 8, 9]]), every_block(model)
    name = "decoder_input_ids" if first is not last else "input_ids"
    changed = inputs | {name: inputs[name].clone()}
    changed[name][0, 1] = 20
    before, after = logits(model, inputs, blocks), logits(model, changed, blocks)
    others = [0, *range(2, before.shape[1])]
    torch.testing.assert_close(after[:, others], before[:, others], rtol=1e-5, atol=1e-5)
    assert (after[:, 1] - before[:, 1]).abs().max() > 1e-3
    with torch.no_grad():
        opened = (model.module(**changed).logits - model.module(**inputs).logits)[:, others]
    assert opened.abs().max() > 1e-4


def test_padding_and_the_batch_do_not_matter(model):
    together = logits(model, inputs_of(model), every_block(model))
    for row, tokens in enumerate(ROWS):
        alone = logits(model, inputs_of(model, [tokens]), every_block(model))[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, rtol=1e-4, atol=1e-5)


def test_a_single_token_loses_nothing(model):
    if model.task == "seq2seq":
        ids = torch.tensor([[5]])
        inputs = model_inputs(model, ids, decoder_input_ids=torch.tensor([[3]]))
    else:
        inputs = inputs_of(model, [[5]])
    whole = logits(model, inputs, [])
    torch.testing.assert_close(logits(model, inputs, every_block(model)), whole, rtol=1e-6, atol=1e-6)


def test_weights_are_the_identity_only_where_blocks_are_closed(model):
    kind, (block, *_) = next(iter(self_attention_blocks(model).items()))
    with torch.no_grad(), closed_attention(model, [block]), tap(model, attention=True) as seen:
        model.module(**inputs_of(model))
    for (stack, name), layers in seen.attention.items():
        for layer, weights in enumerate(layers):
            own = torch.eye(*weights.shape[2:]).expand_as(weights)
            is_closed = (f"{stack}-{name}", layer) == (kind, block[1])
            assert bool(torch.equal(weights, own)) == is_closed


@pytest.mark.parametrize("family", ["marian", "encoder-decoder"])
def test_generation_with_a_cache_is_generation_without(family):
    model = load_model(build(family))
    ids, mask = pad_rows([[5, 6, 7, 8, 9]], PAD)
    common = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "num_beams": 1, "min_new_tokens": 6}
    common["decoder_start_token_id"] = start_token_id(model)
    for kind in self_attention_blocks(model):
        with torch.no_grad(), closed_attention(model, self_attention_blocks(model)[kind]):
            cached, plain = (model.module.generate(ids, use_cache=cache, **common) for cache in (True, False))
        assert torch.equal(cached, plain)


def test_a_closed_model_trains_its_values_and_leaves_queries_at_rest():
    model = load_model(build("bert"))
    with closed_attention(model, every_block(model)):
        model.module(torch.tensor([ROWS[0]])).logits.square().mean().backward()
    attention = model.module.bert.encoder.layer[0].attention.self
    assert attention.value.weight.grad.abs().max() > 0
    for one in (attention.query, attention.key):  # gradients of 0, not none: parallel training waits for all of them
        assert one.weight.grad.abs().max() == 0


def test_blocks_are_checked():
    model = load_model(build("marian"))
    with pytest.raises(UserError, match=r'\("decoder", 0\.\.2\), \("encoder", 0\.\.1\)\. Got \["encoder", 2\]'):
        closed_attention(model, [("encoder", 2)]).__enter__()
