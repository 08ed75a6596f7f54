"""Heads switched off in every family, against zeroed weights; means, other sentences, frozen patterns."""

import importlib.util
from pathlib import Path

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.heads import ablate
from infoflow.models import load_model, model_inputs, pad_rows, tap, translate

_SPEC = importlib.util.spec_from_file_location("families", Path(__file__).parents[1] / "models" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
families = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(families)
ROWS = [[5, 9, 21, 7, 30, 12, 4], [6, 31, 8, 17], [11, 4, 25, 19, 38, 13]]


def inputs_of(model, rows=ROWS):
    ids, mask = pad_rows(rows, model.pad_token_id)
    decoder = ids.flip(1)[:, :5].clamp(min=3) if model.task == "seq2seq" else None
    return model_inputs(model, ids, mask, decoder_input_ids=decoder)


def run(model, inputs):
    with torch.no_grad():
        return model.module(**inputs).logits


@pytest.fixture(scope="module", params=families.FAMILIES)
def model(request):
    return load_model(families.build(request.param))


@pytest.fixture(scope="module")
def bert():
    return load_model(families.build("bert"))


def some_heads(model):
    """One head of every attention."""
    return [(a.stack, a.kind, a.layer, (a.layer + len(a.kind)) % a.num_heads) for a in model.anatomy.attentions()]


def test_zero_equals_zeroed_output_weights_in_every_family(model):
    """`head_mask=` is gone from transformers and silently ignored there: what is asked for here must happen."""
    heads, inputs = some_heads(model), inputs_of(model)
    if model.anatomy.stacks[0].shared:  # the weights of one layer are those of all
        heads = [(*head[:3], 1) for head in heads]
    before = run(model, inputs)
    with ablate(model, heads):
        ablated = run(model, inputs)
    assert (ablated - before).abs().max() > 1e-3
    assert torch.equal(run(model, inputs), before)
    attentions = {(a.stack, a.kind, a.layer): a for a in model.anatomy.attentions()}
    saved = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    with torch.no_grad():
        for *site, head in heads:
            (part,) = attentions[tuple(site)].output.head(head)
            weight = model.module.get_parameter(part.parameter)
            weight[part.mask(weight)] = 0.0
    torch.testing.assert_close(ablated, run(model, inputs), rtol=1e-4, atol=1e-5)
    model.module.load_state_dict(saved)


def test_head_mask_of_transformers_is_ignored_and_ours_is_not(bert):
    inputs = inputs_of(bert)
    heads = [(a.stack, a.kind, a.layer, head) for a in bert.anatomy.attentions() for head in range(a.num_heads)]
    with ablate(bert, heads):
        everything = run(bert, inputs)
    try:
        masked = run(bert, inputs | {"head_mask": torch.zeros(3, 4)})
    except TypeError:  # a version that no longer swallows it
        return
    assert torch.equal(masked, run(bert, inputs))
    assert not torch.allclose(everything, masked)


def test_the_attention_kernel_stays(bert):
    seen = []
    with ablate(bert, [("encoder", "self", 1, 2)]):
        seen.append(bert.module.config._attn_implementation)
    assert seen == ["sdpa"]


def test_one_query_head_of_a_group_goes_alone():
    model = load_model(families.build("llama"))  # four query heads over two key/value heads
    inputs = inputs_of(model)
    with ablate(model, [("decoder", "self", 0, 1)]), torch.no_grad(), tap(model, heads=True) as seen:
        model.module(**inputs)
    heads = seen.heads["decoder", "self"]
    assert heads[0][:, :, 1].abs().max() == 0
    assert heads[0][:, :, 0].abs().max() > 0
    assert heads[1].abs().amin(dim=(0, 1, 3)).shape == (4,)


def reference_means(model, inputs, site, real):
    stack, kind, layer = site
    with torch.no_grad(), tap(model, heads=True) as seen:
        model.module(**inputs)
    return seen.heads[stack, kind][layer][real.bool()].mean(dim=0)


@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_mean_over_real_tokens_of_a_reference(family):
    model = load_model(families.build(family))
    kind = "cross" if family == "marian" else "self"
    stack = "encoder" if family == "bert" else "decoder"
    inputs, other = inputs_of(model), inputs_of(model, [[*row[::-1], 9, 10] for row in ROWS])
    real = other["attention_mask"]
    if family == "marian":
        other["decoder_attention_mask"] = real = torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] * 5])
    mean = reference_means(model, other, (stack, kind, 1), real)[2 % mean_heads(model, stack, kind)]
    head = 2 % mean_heads(model, stack, kind)
    with (
        ablate(model, [(stack, kind, 1, head)], mode="mean", reference=other),
        torch.no_grad(),
        tap(model, heads=True) as seen,
    ):
        model.module(**inputs)
    found = seen.heads[stack, kind][1][:, :, head]
    torch.testing.assert_close(found, mean.expand_as(found))


def mean_heads(model, stack, kind):
    return model.anatomy.stack(stack).layers[1].attentions[kind].num_heads


def test_a_batch_is_its_own_reference_by_default(bert):
    inputs = inputs_of(bert)
    mask = inputs["attention_mask"].bool()
    with torch.no_grad(), tap(bert, heads=True) as seen:
        bert.module(**inputs)
    own = seen.heads["encoder", "self"][0][:, :, 1]
    with ablate(bert, [("encoder", "self", 0, 1)], mode="mean"), torch.no_grad(), tap(bert, heads=True) as seen:
        bert.module(**inputs)
    found = seen.heads["encoder", "self"][0][:, :, 1]
    torch.testing.assert_close(found, own[mask].mean(dim=0).expand_as(found))
    with ablate(bert, [("encoder", "self", 0, 1)], mode="resample"), torch.no_grad(), tap(bert, heads=True) as seen:
        bert.module(**inputs)
    found = seen.heads["encoder", "self"][0][:, :, 1]
    # Lengths 7, 4, 6: each takes from the next longer, the longest from the second longest.
    torch.testing.assert_close(found[1, :4], own[2, :4])
    torch.testing.assert_close(found[2, :6], own[0, :6])
    torch.testing.assert_close(found[0, :6], own[2, :6])
    torch.testing.assert_close(found[0, 6], own[0, 6])  # where the donor has ended


def test_resampling_from_a_corpus_and_a_batch(matched_models, parallel_corpus):
    model = matched_models["translation"]
    ids, mask = pad_rows([[2, 7, 8, 9, 3], [2, 9, 3]], model.pad_token_id)
    inputs = model_inputs(model, ids, mask, decoder_input_ids=torch.tensor([[2, 6, 7], [2, 8, 9]]))
    heads = [("encoder", "self", 0, 1), ("decoder", "cross", 1, 0)]
    before = run(model, inputs)
    for mode in ("mean", "resample"):
        with ablate(model, heads, mode=mode, reference=parallel_corpus):
            once, twice = run(model, inputs), run(model, inputs)
        assert torch.equal(once, twice)
        assert (once - before).abs().max() > 1e-4
    longer = model_inputs(model, torch.full((1, 9), 8), decoder_input_ids=torch.full((1, 6), 9))
    with torch.no_grad(), tap(model, heads=True) as seen:
        model.module(**longer)
    donor = seen.heads["encoder", "self"][0][0, :5, 1]
    with ablate(model, heads, mode="resample", reference=longer), torch.no_grad(), tap(model, heads=True) as seen:
        model.module(**inputs)
    torch.testing.assert_close(seen.heads["encoder", "self"][0][0, :5, 1], donor)


def test_generation_runs_ablated(matched_models, parallel_corpus):
    model = matched_models["translation"]
    heads = [("decoder", "self", 0, 2), ("encoder", "self", 1, 1)]
    plain = translate(model, ["the cat sees a dog"], beams=1)
    with ablate(model, heads, mode="mean", reference=parallel_corpus):
        assert translate(model, ["the cat sees a dog"], beams=1)
    with pytest.raises(UserError, match="reference"), ablate(model, heads, mode="mean"):
        translate(model, ["the cat sees a dog"], beams=1)
    assert translate(model, ["the cat sees a dog"], beams=1) == plain


def test_preserved_patterns_are_those_of_the_clean_model(bert):
    inputs, heads = inputs_of(bert), [("encoder", "self", 0, 1), ("encoder", "self", 0, 3)]
    with torch.no_grad(), tap(bert, attention=True) as seen:
        bert.module(**inputs)
    clean = [weights.clone() for weights in seen.attention["encoder", "self"]]
    with ablate(bert, heads, preserve_patterns=True), torch.no_grad(), tap(bert, attention=True) as seen:
        frozen = bert.module(**inputs).logits
    for layer, weights in enumerate(seen.attention["encoder", "self"]):
        torch.testing.assert_close(weights, clean[layer])
    with ablate(bert, heads), torch.no_grad(), tap(bert, attention=True) as seen:
        free = bert.module(**inputs).logits
    assert (seen.attention["encoder", "self"][1] - clean[1]).abs().max() > 1e-3
    assert (free - frozen).abs().max() > 1e-3
    with torch.no_grad(), ablate(bert, [], preserve_patterns=True):
        torch.testing.assert_close(bert.module(**inputs).logits, run(bert, inputs))


def hooks_of(model):
    """All hooks: transformers keeps some of its own on a model that was once asked for its states."""
    return [[*child._forward_pre_hooks.values(), *child._forward_hooks.values()] for child in model.module.modules()]


def test_everything_is_restored_after_an_error(bert):
    inputs = inputs_of(bert)
    before, hooks = run(bert, inputs), hooks_of(bert)

    def fail():
        with ablate(bert, some_heads(bert), mode="mean", preserve_patterns=True):
            run(bert, inputs)
            raise RuntimeError("the user's own mistake")

    with pytest.raises(RuntimeError, match="own mistake"):
        fail()
    assert torch.equal(run(bert, inputs), before)
    assert hooks_of(bert) == hooks
    assert bert.module.config._attn_implementation == "sdpa"


def test_wrong_heads_and_modes_are_named(bert):
    for heads, message in (
        ([("encoder", "self", 3, 0)], r'"self", 0\.\.2'),
        ([("encoder", "self", 0, 4)], r"heads 0..3"),
        ([("decoder", "self", 0, 0)], r'Got \["decoder"'),
        ([(0, 1)], "stack, kind, layer, head"),
    ):
        with pytest.raises(UserError, match=message), ablate(bert, heads):
            pass
    with pytest.raises(UserError, match="zero, mean, resample"), ablate(bert, [], mode="noise"):
        pass
    with (
        pytest.raises(UserError, match="one sentence only"),
        ablate(bert, [("encoder", "self", 0, 0)], mode="resample"),
    ):
        bert.module(torch.tensor([[5, 6]]))
