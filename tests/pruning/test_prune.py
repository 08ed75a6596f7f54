"""Heads really removed, in every family: the pruned model against the ablated one, in memory and from disk."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.plain import run_plain

from infoflow.foundation import UserError
from infoflow.heads import ablate, load_pruned, prune
from infoflow.models import kept_heads, load_model, model_inputs, pad_rows, save_pruned, tap

pytestmark = pytest.mark.slow

_SPEC = importlib.util.spec_from_file_location("families", Path(__file__).parents[1] / "models" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
families = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(families)
ROWS = [[5, 9, 21, 7, 30, 12, 4], [6, 31, 8, 17], [11, 4, 25, 19, 38, 13]]
ANY = [name for name in families.FAMILIES if name not in ("albert", "phi3")]


def plain_logits(folder, model):
    """The logits that transformers' own loader gives, with the folder's code; run in a process that has no infoflow."""
    torch.save(inputs_of(model), folder.parent / "inputs.pt")
    run_plain(
        "import sys, json, pathlib, torch, transformers\n"
        "sys.modules['infoflow'] = None\n"
        "(auto,) = json.loads(pathlib.Path('config.json').read_text())['auto_map']\n"
        "family = getattr(transformers, auto)\n"
        "options = {'trust_remote_code': True, 'dtype': torch.float64, 'output_loading_info': True}\n"
        "model, report = family.from_pretrained('.', **options)\n"
        "assert not any(report.values()), report\n"
        "with torch.no_grad():\n"
        "    found = model.eval()(**torch.load('../inputs.pt')).logits\n"
        "torch.save(found, '../found.pt')\n",
        folder,
    )
    return torch.load(folder.parent / "found.pt")


def double(family):
    return load_model(families.build(family).double())


def inputs_of(model):
    ids, mask = pad_rows(ROWS, model.pad_token_id)
    decoder = ids.flip(1)[:, :5].clamp(min=3) if model.task == "seq2seq" else None
    return model_inputs(model, ids, mask, decoder_input_ids=decoder)


def logits(model):
    with torch.no_grad():
        return model.module(**inputs_of(model)).logits


def whole_groups(model):
    """In every attention another group of heads; one head where each has its own key and value."""
    chosen = []
    for one in model.anatomy.attentions():
        size = one.num_heads // one.num_key_value_heads
        group = (one.layer + len(one.kind)) % one.num_key_value_heads
        chosen += [(one.stack, one.kind, one.layer, group * size + index) for index in range(size)]
    return chosen


@pytest.mark.parametrize("family", ANY)
def test_pruned_model_equals_the_ablated_one_in_memory_and_from_disk(family, tmp_path):
    model = double(family)
    heads = whole_groups(model)
    with ablate(model, heads):
        expected = logits(model)
    before = logits(model)
    pruned = prune(model, heads)
    tolerance = 1e-5 if family in ("llama", "qwen3", "mistral", "gemma2", "gemma3") else 1e-9  # softmax in float32
    torch.testing.assert_close(logits(pruned), expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(logits(model), before)
    assert pruned.module.num_parameters() < model.module.num_parameters()
    counts = {(a.stack, a.kind, a.layer): a.num_heads for a in pruned.anatomy.attentions()}
    for one in model.anatomy.attentions():
        site = (one.stack, one.kind, one.layer)
        gone = [head for *where, head in heads if tuple(where) == site]
        assert counts[site] == one.num_heads - len(gone)
        assert kept_heads(pruned.module)[site] == tuple(h for h in range(one.num_heads) if h not in gone)
    save_pruned(pruned, tmp_path / "pruned", origin={"method": "by hand"})
    again = load_pruned(tmp_path / "pruned")
    again = again if again.module.dtype == torch.float64 else load_model(tmp_path / "pruned", dtype=torch.float64)
    torch.testing.assert_close(logits(again), logits(pruned), rtol=0, atol=1e-14)  # weights lie otherwise in memory
    assert again.module.num_parameters() == pruned.module.num_parameters()
    assert again.digest == pruned.digest
    if family in ("bert", "gpt2", "t5", "gpt_neox", "encoder-decoder"):
        torch.testing.assert_close(plain_logits(tmp_path / "pruned", pruned), logits(pruned), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "llama"])
def test_pruned_models_run_eager_tapped_and_are_pruned_again(family, eager_logits):
    model = double(family)
    first = whole_groups(model)
    pruned = prune(model, first)
    torch.testing.assert_close(eager_logits(pruned), logits(pruned), rtol=1e-5, atol=1e-6)
    with torch.no_grad(), tap(pruned, attention=True, heads=True) as seen:
        pruned.module(**inputs_of(pruned))
    for (stack, kind), layers in seen.heads.items():
        for layer, heads in enumerate(layers):
            assert heads.shape[2] == pruned.anatomy.stack(stack).layers[layer].attentions[kind].num_heads
    one = next(iter(pruned.anatomy.attentions()))
    size = one.num_heads // one.num_key_value_heads
    more = [(one.stack, one.kind, 0, head) for head in range(size)]
    twice = prune(pruned, more)
    names = kept_heads(pruned.module)[one.stack, one.kind, 0][:size]
    with ablate(model, [*first, *((one.stack, one.kind, 0, name) for name in names)]):
        expected = logits(model)
    torch.testing.assert_close(logits(twice), expected, rtol=1e-5, atol=1e-5)
    assert not set(kept_heads(twice.module)[one.stack, one.kind, 0]) & set(names)


@pytest.fixture
def eager_logits():
    def run(model):
        configs = {id(m.config): m.config for m in model.module.modules() if hasattr(m, "config")}
        saved = {key: config._attn_implementation for key, config in configs.items()}
        try:
            for config in configs.values():
                config._attn_implementation_internal = "eager"
            return logits(model)
        finally:
            for key, config in configs.items():
                config._attn_implementation_internal = saved[key]

    return run


@pytest.mark.parametrize("family", ["bert", "gpt_neox", "modernbert", "t5", "marian", "distilbert"])
def test_all_heads_of_a_layer_leave_the_bias(family, tmp_path):
    model = double(family)
    one = list(model.anatomy.attentions())[-1]
    heads = [(one.stack, one.kind, one.layer, head) for head in range(one.num_heads)]
    with ablate(model, heads):
        expected = logits(model)
    pruned = prune(model, heads)
    torch.testing.assert_close(logits(pruned), expected, rtol=1e-9, atol=1e-9)
    save_pruned(pruned, tmp_path / "pruned")
    torch.testing.assert_close(logits(load_model(tmp_path / "pruned", dtype=torch.float64)), logits(pruned))


def test_part_of_a_group_is_refused_or_silenced():
    model = double("llama")  # heads 0 and 1 share a key and value
    heads = [("decoder", "self", 0, 0), ("decoder", "self", 1, 2), ("decoder", "self", 1, 3)]
    with pytest.raises(UserError, match="Heads 0, 1 of decoder self-attention layer 0 share"):
        prune(model, heads)
    pruned = prune(model, heads, incomplete="zero")
    with ablate(model, heads):
        expected = logits(model)
    torch.testing.assert_close(logits(pruned), expected, rtol=1e-5, atol=1e-6)
    assert [a.num_heads for a in pruned.anatomy.attentions()] == [4, 2, 4]


def test_shared_layers_lose_the_same_heads_or_none(tmp_path):
    model = double("albert")
    with pytest.raises(UserError, match="share one set of weights"):
        prune(model, [("encoder", "self", 0, 1)])
    heads = [("encoder", "self", layer, 1) for layer in range(3)]
    pruned = prune(model, heads)
    with ablate(model, heads):
        torch.testing.assert_close(logits(pruned), logits(model), rtol=1e-9, atol=1e-9)
    save_pruned(pruned, tmp_path / "albert")
    assert torch.equal(logits(load_model(tmp_path / "albert", dtype=torch.float64)), logits(pruned))


def test_what_cannot_be_removed_is_refused():
    model = double("phi3")
    with pytest.raises(UserError, match="Ablate"):
        prune(model, whole_groups(model))
    for family in ("gpt2", "opt"):
        with pytest.raises(UserError, match="leave at least one head"):
            prune(double(family), [("decoder", "self", 2, head) for head in range(4)])
    bert = double("bert")
    with pytest.raises(UserError, match="has all its heads"):
        save_pruned(bert, "nowhere")
    with pytest.raises(UserError, match="heads must be heads of"):
        prune(bert, [("encoder", "self", 9, 0)])
    with pytest.raises(UserError, match="has no pruned model"):
        load_pruned("/")


def test_a_fresh_process_computes_the_same(tmp_path):
    pruned = prune(double("t5"), [("encoder", "self", 0, 1), ("decoder", "cross", 1, 3), ("decoder", "self", 2, 0)])
    save_pruned(pruned, tmp_path / "t5")
    manifest = json.loads((tmp_path / "t5" / "pruned.json").read_text())
    assert {"stack": "encoder", "kind": "self", "layer": 0, "heads": [0, 2, 3]} in manifest["kept"]
    torch.save({"inputs": inputs_of(pruned), "logits": logits(pruned)}, tmp_path / "expected.pt")
    script = (
        "import sys, torch\n"
        "from infoflow.models import load_model\n"
        "folder = sys.argv[1]\n"
        "model = load_model(folder + '/t5', dtype=torch.float64)\n"
        "expected = torch.load(folder + '/expected.pt')\n"
        "with torch.no_grad():\n"
        "    found = model.module(**expected['inputs']).logits\n"
        "assert torch.equal(found, expected['logits'])\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)


def test_gradients_flow_through_what_is_left():
    pruned = prune(double("bert"), [("encoder", "self", 1, 2)])
    pruned.module(**inputs_of(pruned)).logits.sum().backward()
    assert all(p.grad is not None for n, p in pruned.module.named_parameters() if "layer.1.attention" in n)
