"""Every element of every parameter lies in exactly one group, and each head owns what the slices say."""

from collections import defaultdict

import pytest
import torch
import transformers

from infoflow.models import COMPONENTS, Model, load_model, model_inputs, tap


def test_every_element_is_in_exactly_one_group(model):
    parameters = dict(model.module.named_parameters())
    times = {name: torch.zeros(parameter.shape, dtype=torch.int) for name, parameter in parameters.items()}
    for group in model.anatomy.parameter_groups:
        mask = group.slice.mask(parameters[group.slice.parameter])
        times[group.slice.parameter] += mask
        assert int(mask.sum()) == group.size
    for name, count in times.items():
        assert (count == 1).all(), name


def test_no_parameter_is_unknown(model):
    components = {group.component for group in model.anatomy.parameter_groups}
    assert components <= set(COMPONENTS) - {"other"}
    assert {"embeddings", "query", "key", "value", "output", "mlp_in", "mlp_out", "norm"} <= components


def test_sizes_of_the_projections(model, family):
    sizes = defaultdict(int)
    for group in model.anatomy.parameter_groups:
        if group.slice.parameter.endswith("weight"):
            sizes[group.component, group.stack, group.layer, group.kind] += group.size
    for one in model.anatomy.attentions():
        if model.anatomy.stack(one.stack).shared and one.layer > 0:
            continue
        where = (one.stack, one.layer, one.kind)
        assert sizes["query", *where] == 16 * one.num_heads * one.head_dim
        assert sizes["key", *where] == 16 * one.num_key_value_heads * one.head_dim
        assert sizes["value", *where] == 16 * one.num_key_value_heads * one.head_dim
        assert sizes["output", *where] == 16 * one.num_heads * one.head_dim


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_zeroing_a_heads_slices_zeroes_that_head_only(models, family, rows, part):
    """A zero query or key makes a head's scores vanish; a zero value its output. Biases included."""
    model: Model = models(family, fresh=True)
    anatomy = model.anatomy
    inputs = {"input_ids": torch.tensor([rows[0]])}
    if model.task == "seq2seq":
        inputs["decoder_input_ids"] = torch.tensor([rows[1]])
    for one in anatomy.attentions():
        if one.layer != len(anatomy.stack(one.stack).layers) - 1 and not anatomy.stack(one.stack).shared:
            continue
        projection = getattr(one, part)
        for piece in projection.head(1):
            parameter = model.module.get_parameter(piece.parameter)
            with torch.no_grad():
                parameter.masked_fill_(piece.mask(parameter), 0)
    calls = {}
    keep = lambda call: calls.update({(call.stack, call.kind, call.layer): call})  # noqa: E731
    with torch.no_grad(), tap(model, on_attention=keep):
        model.module(**model_inputs(model, **inputs))
    for one in anatomy.attentions():
        if one.layer == len(anatomy.stack(one.stack).layers) - 1:
            call = calls[one.stack, one.kind, one.layer]
            seen = getattr(call, part)
            group = 1 if part == "query" else one.num_heads // one.num_key_value_heads
            zero = [head for head in range(one.num_heads) if not seen[:, head].any()]
            assert zero == list(range(group, 2 * group))


def test_slices_take_what_the_mask_says(model):
    """`take` and `mask` select the same elements; heads split a projection without rest or overlap."""
    for one in model.anatomy.attentions():
        for projection in (one.query, one.key, one.value, one.output):
            weight = model.module.get_parameter(projection.weight.parameter)
            whole = projection.weight.mask(weight)
            assert int(whole.sum()) == projection.weight.take(weight).numel()
            parts = [projection.head(head)[0].mask(weight) for head in range(projection.num_heads)]
            assert torch.equal(sum(part.int() for part in parts), whole.int())
            stacked = [projection.head(head)[0].take(weight) for head in range(projection.num_heads)]
            joined = torch.cat(stacked, dim=projection.weight.dim)
            assert torch.equal(joined, projection.weight.take(weight))
            assert torch.equal(joined, weight.index_select(projection.weight.dim, projection.weight.indices()))


BERT = {
    "bert.embeddings.word_embeddings.weight": ("embeddings", None, None),
    "bert.embeddings.position_embeddings.weight": ("positions", None, None),
    "bert.embeddings.token_type_embeddings.weight": ("segments", None, None),
    "bert.embeddings.LayerNorm.bias": ("norm", None, None),
    "bert.encoder.layer.1.attention.self.query.bias": ("query", 1, "self"),
    "bert.encoder.layer.1.attention.output.dense.weight": ("output", 1, "self"),
    "bert.encoder.layer.1.attention.output.dense.bias": ("output", 1, "self"),
    "bert.encoder.layer.1.attention.output.LayerNorm.weight": ("norm", 1, "self"),
    "bert.encoder.layer.1.intermediate.dense.weight": ("mlp_in", 1, None),
    "bert.encoder.layer.1.output.dense.weight": ("mlp_out", 1, None),
    "bert.encoder.layer.1.output.LayerNorm.weight": ("norm", 1, None),
    "cls.predictions.bias": ("head", None, None),
    "cls.predictions.transform.LayerNorm.weight": ("head", None, None),
}
OPT = {
    "model.decoder.project_in.weight": ("embeddings", None, None),
    "model.decoder.project_out.weight": ("head", None, None),
    "model.decoder.final_layer_norm.weight": ("norm", None, None),
    "model.decoder.layers.2.final_layer_norm.weight": ("norm", 2, None),
    "model.decoder.layers.2.fc2.bias": ("mlp_out", 2, None),
}
T5 = {
    "shared.weight": ("embeddings", None, None),
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": ("positions", None, None),
    "decoder.block.1.layer.1.EncDecAttention.o.weight": ("output", 1, "cross"),
    "decoder.block.1.layer.2.DenseReluDense.wi_0.weight": ("mlp_in", 1, None),
    "decoder.block.1.layer.2.DenseReluDense.wi_1.weight": ("mlp_in", 1, None),
    "decoder.block.1.layer.2.DenseReluDense.wo.weight": ("mlp_out", 1, None),
}
GPT2 = {
    "transformer.h.1.mlp.c_proj.weight": ("mlp_out", 1, None),
    "transformer.h.1.attn.c_proj.weight": ("output", 1, "self"),
    "transformer.ln_f.weight": ("norm", None, None),
}


@pytest.mark.parametrize(
    ("name", "expected"), [("bert", BERT), ("opt", OPT), ("t5", T5), ("gpt2", GPT2)], ids=lambda value: str(value)[:4]
)
def test_names_that_mislead(models, name, expected):
    found = {
        group.slice.parameter: (group.component, group.layer, group.kind)
        for group in models(name).anatomy.parameter_groups
    }
    assert {parameter: found[parameter] for parameter in expected} == expected


def test_stacks_of_what_lies_outside_the_blocks(models):
    stacks = {group.slice.parameter: group.stack for group in models("encoder-decoder").anatomy.parameter_groups}
    assert stacks["encoder.embeddings.word_embeddings.weight"] == "encoder"
    assert stacks["decoder.bert.embeddings.position_embeddings.weight"] == "decoder"
    assert stacks["decoder.cls.predictions.bias"] == "decoder"
    bart = {group.slice.parameter: group.stack for group in models("bart").anatomy.parameter_groups}
    assert bart["model.shared.weight"] is None
    assert bart["model.encoder.embed_positions.weight"] == "encoder"


def test_gpt2_keeps_heads_in_columns_and_neox_interleaves(models):
    gpt2 = next(models("gpt2").anatomy.attentions())
    assert gpt2.key.head(1)[0].dim == 1
    assert gpt2.key.head(1)[0].ranges == ((16 + 4, 16 + 8),)
    assert gpt2.output.head(1)[0].dim == 0
    neox = next(models("gpt_neox").anatomy.attentions())
    assert neox.value.weight.ranges == ((8, 12), (20, 24), (32, 36), (44, 48))
    assert neox.value.head(2)[0].ranges == ((32, 36),)
    phi3 = next(models("phi3").anatomy.attentions())
    assert [phi3.query.weight.ranges, phi3.key.weight.ranges] == [((0, 16),), ((16, 24),)]


def test_cross_attention_that_never_runs_is_no_mlp():
    config = transformers.BartConfig(
        vocab_size=20, d_model=8, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=8, is_decoder=True
    )
    groups = load_model(transformers.BartForCausalLM(config)).anatomy.parameter_groups
    idle = {group.component for group in groups if "encoder_attn." in group.slice.parameter}
    assert idle == {"other"}
    assert not any(group.component == "other" for group in groups if "encoder_attn." not in group.slice.parameter)
