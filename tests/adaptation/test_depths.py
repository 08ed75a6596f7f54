"""Depths of parameters, rates by depth, adapters in the anatomy."""

import pytest
import torch
from adaptation.small_task import BERT, VOCABULARY, small_data, small_model, small_tokenizer
from adaptation.test_task_model import FAMILIES, _texts
from transformers import (
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    MPNetConfig,
    MPNetForMaskedLM,
    OPTConfig,
    OPTForCausalLM,
    XLMRobertaXLConfig,
    XLMRobertaXLForMaskedLM,
)

from infoflow.adaptation import TuneConfig, make_task
from infoflow.models import discover, load_model
from infoflow.subjects.adaptation.measures._methods import add_adapters, merge_adapters, parameter_depths, prepare
from infoflow.subjects.adaptation.measures._task_model import fresh_model
from infoflow.training import TrainConfig
from infoflow.training._config import make_optimizer


@pytest.fixture(scope="module")
def task():
    return make_task(small_data(24))


def test_depths_of_one_stack(task):
    built = fresh_model(small_model(), task, 0)
    depths, top = parameter_depths(built.module, discover(built.module.eval()), built.fresh)
    assert top == 3
    for name, depth in depths.items():
        expected = 0 if "embeddings" in name else 1 if "layer.0" in name else 2 if "layer.1" in name else 3
        assert depth == expected, name


def test_depths_of_two_stacks_and_of_shared_blocks(task):
    built = fresh_model(small_model("bart"), task, 0)
    depths, top = parameter_depths(built.module, discover(built.module.eval()), built.fresh)
    assert top == 5
    assert depths["model.shared.weight"] == 0
    found = {name.split(".fc1")[0]: depth for name, depth in depths.items() if name.endswith("fc1.weight")}
    assert list(found.values()) == [1, 2, 3, 4]
    assert all(depth == 5 for name, depth in depths.items() if name.startswith("classification_head"))
    shared = fresh_model(small_model("albert"), task, 0)
    assert parameter_depths(shared.module, discover(shared.module.eval()), shared.fresh)[1] == 2


_DISTANCES = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm"}
_FURTHER = {
    "deberta-v2": lambda: DebertaV2ForMaskedLM(DebertaV2Config(**BERT, **_DISTANCES, position_buckets=8)),
    "mpnet": lambda: MPNetForMaskedLM(MPNetConfig(**BERT | {"pad_token_id": 1})),
    "opt": lambda: OPTForCausalLM(
        OPTConfig(
            vocab_size=VOCABULARY, hidden_size=16, word_embed_proj_dim=8, num_hidden_layers=2, num_attention_heads=2,
            ffn_dim=32, max_position_embeddings=40, pad_token_id=0,
        )
    ),
    "xlm-roberta-xl": lambda: XLMRobertaXLForMaskedLM(XLMRobertaXLConfig(**BERT)),
}  # fmt: skip
# What stands outside blocks, does not begin at random, and is no table or norm of embeddings.
_BEHIND = {
    "encoder-decoder": {"bert.pooler.dense.weight": 3, "bert.pooler.dense.bias": 3},
    "gpt2": {"transformer.ln_f.weight": 3, "transformer.ln_f.bias": 3},
    "llama": {"model.norm.weight": 3},
    "t5": {"transformer.encoder.final_layer_norm.weight": 2, "transformer.decoder.final_layer_norm.weight": 5},
    "opt": {f"model.decoder.{name}": 3 for name in (
        "project_out.weight", "final_layer_norm.weight", "final_layer_norm.bias"
    )},
    "xlm-roberta-xl": {"roberta.encoder.LayerNorm.weight": 3, "roberta.encoder.LayerNorm.bias": 3},
}  # fmt: skip


@pytest.mark.parametrize("family", [*FAMILIES, *_FURTHER])
def test_depths_outside_blocks_are_those_of_reading_and_of_answering(family, task):
    """Embeddings of both stacks and of distances, with their norms, lie lowest wherever a family has them; final norms,
    poolers and heads highest, or behind the encoder's last block."""
    torch.manual_seed(0)
    model = load_model(_FURTHER[family]().eval(), small_tokenizer()) if family in _FURTHER else small_model(family)
    built = fresh_model(model, task, 0)
    anatomy = discover(built.module.eval())
    depths, top = parameter_depths(built.module, anatomy, built.fresh)
    blocks = tuple(f"{layer.block}." for stack in anatomy.stacks for layer in stack.layers)
    outside = {name: depth for name, depth in depths.items() if not name.startswith(blocks) and name not in built.fresh}
    behind = _BEHIND.get(family, {})
    assert {name: depth for name, depth in outside.items() if name in behind} == behind
    assert {depth for name, depth in outside.items() if name not in behind} == {0}
    assert all(depths[name] == top for name in built.fresh)


def test_a_lower_layer_learns_slower_and_decays_too(task):
    built = fresh_model(small_model(), task, 0)
    module = prepare(built, task, TuneConfig(method="decay", layer_decay=0.5), 0)
    optimizer = make_optimizer(module, TrainConfig(weight_decay=0.1, decay_norms=False))
    names = {parameter: name for name, parameter in module.named_parameters()}
    seen = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            seen[names[parameter]] = group.get("rate_scale", 1.0), group["weight_decay"]
            assert group["weight_decay"] == (0.1 if parameter.ndim >= 2 else 0.0)
    assert seen["bert.embeddings.word_embeddings.weight"][0] == 0.5**3
    assert seen["bert.encoder.layer.0.output.dense.weight"][0] == 0.5**2
    assert seen["bert.encoder.layer.1.output.dense.bias"][0] == 0.5
    assert seen["classifier.weight"][0] == seen["bert.pooler.dense.weight"][0] == 1.0
    assert len(seen) == len(names)


def test_a_rate_of_its_own_alone_still_means_no_decay():
    module = torch.nn.Linear(3, 2)
    module.weight.rate_scale = 10.0  # as a gate has
    optimizer = make_optimizer(module, TrainConfig(weight_decay=0.1))
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    assert (groups[id(module.weight)]["rate_scale"], groups[id(module.weight)]["weight_decay"]) == (10.0, 0.0)
    assert groups[id(module.bias)]["weight_decay"] == 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_are_a_part_of_their_own_and_are_merged(family, task):
    built = fresh_model(small_model(family), task, 0)
    module = built.module.eval()
    before = discover(module)
    with torch.no_grad():
        untouched = module(input_ids=_texts()).logits
        add_adapters(module, built.head, rank=2, alpha=8.0, seed=0)
        assert torch.allclose(module(input_ids=_texts()).logits, untouched, atol=1e-5)
        with_adapters = discover(module.eval())
        for name, parameter in module.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter)
        expected = module(input_ids=_texts()).logits
        assert not torch.allclose(expected, untouched, atol=1e-5)
        merge_adapters(module)
        assert torch.allclose(module(input_ids=_texts()).logits, expected, atol=1e-5)
    adapters = [group for group in with_adapters.parameter_groups if group.component == "adapter"]
    assert adapters
    assert all(group.layer is not None and group.kind is not None for group in adapters)
    others = [(g.component, g.layer, g.stack) for g in with_adapters.parameter_groups if g.component != "adapter"]
    assert others == [(g.component, g.layer, g.stack) for g in before.parameter_groups]
    assert [name for name, _ in module.named_parameters()] == _names(before)


def _names(anatomy) -> list[str]:
    return list(dict.fromkeys(group.slice.parameter for group in anatomy.parameter_groups))
