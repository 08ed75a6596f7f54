"""Relevance beside the reference implementations that run: captum, lxt, and Hugging Face's own attention.

    pip install --no-deps --target refs captum matplotlib contourpy cycler kiwisolver pyparsing pillow fonttools
    git clone https://github.com/rachtibat/LRP-eXplains-Transformers refs/lxt-source   # lxt 2.1 does not import
    PYTHONPATH=refs:refs/lxt-source .venv/bin/python benchmarks/relevance_agreement.py

Prints the largest difference, relative to the largest number, on tiny random models; about a minute. Without captum or
lxt their rows are left out. lxt patches whole families for good, so each of its comparisons has a process of its own.
"""

import argparse
import subprocess
import sys
from importlib.util import find_spec

import torch

IDS = torch.tensor([[5, 6, 7, 8, 9, 11]])
POSITION, TARGET = 4, 12
LXT = [(family, method) for family in ("llama", "qwen3", "gpt2") for method in ("cp-lrp", "attn-lrp")]


def build(family: str):
    """A random model of three layers and four heads, in float64, with weights far from zero."""
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 32}
    grouped = sizes | {"num_key_value_heads": 2, "head_dim": 8}
    gpt2 = {
        "vocab_size": 40,
        "n_embd": 16,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 32,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    made = {
        "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**sizes)),
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2)),
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**grouped)),
        "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**grouped)),
    }
    module = made[family]().double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4 if parameter.dim() > 1 else 0.2)
    return module


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def against_captum(family: str) -> float:
    """Gradient times input at every output projection's input."""
    from captum.attr import LayerGradientXActivation

    from infoflow.heads import relevance
    from infoflow.models import load_model

    module = build(family)
    model = load_model(module)
    frame = relevance(model, {"input_ids": IDS}, "gradient-x-input", POSITION, TARGET, normalise=None)
    found = torch.tensor(frame["relevance"].to_numpy())
    expected = []
    embeds = module.get_input_embeddings()(IDS).detach().requires_grad_()
    for one in model.anatomy.attentions():
        layer = module.get_submodule(one.output_projection)
        method = LayerGradientXActivation(
            lambda embeds: module(inputs_embeds=embeds).logits[:, POSITION, TARGET], layer
        )
        parts = method.attribute(embeds, attribute_to_layer_input=True)
        expected.append(parts.unflatten(-1, (one.num_heads, -1)).sum((0, 1, 3)))
    return difference(found, torch.cat(expected).detach())


def against_lxt(family: str, method: str) -> float:
    """CP-LRP and AttnLRP of the embeddings' tokens, by lxt's patches of the family's code."""
    from importlib import import_module

    from infoflow.heads import token_relevance
    from infoflow.models import load_model

    module = build(family)
    tokens = token_relevance(load_model(module), {"input_ids": IDS}, method, POSITION, TARGET)
    found = torch.tensor(tokens["relevance"].to_numpy())
    from lxt.efficient import monkey_patch

    rules = import_module(f"lxt.efficient.models.{family}")
    modeling = import_module(f"transformers.models.{family}.modeling_{family}")
    monkey_patch(modeling, patch_map=rules.attnLRP if method == "attn-lrp" else rules.cp_LRP)
    module.set_attn_implementation("eager")
    states = {}

    def leaf(block, args, kwargs):
        states["first"] = (args[0] if args else kwargs["hidden_states"]).detach().requires_grad_()
        return (states["first"], *args[1:]), kwargs

    block = module.transformer.h[0] if family == "gpt2" else module.model.layers[0]
    block.register_forward_pre_hook(leaf, with_kwargs=True)
    module(input_ids=IDS).logits[0, POSITION, TARGET].backward()
    return difference(found, (states["first"] * states["first"].grad).sum(2)[0].detach())


def against_eager(family: str) -> float:
    """Attention weights, which BertViz draws as Hugging Face's eager attention returns them."""
    from infoflow.models import load_model, tap

    module = build(family)
    model = load_model(module)
    with torch.no_grad(), tap(model, attention=True) as seen:
        module(input_ids=IDS)
    (found,) = seen.attention.values()
    module.set_attn_implementation("eager")
    expected = module(input_ids=IDS, output_attentions=True).attentions
    return max(difference(ours.detach(), theirs.detach()) for ours, theirs in zip(found, expected, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs=2, metavar=("FAMILY", "METHOD"), help="one comparison with lxt")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    if only:
        print(f"{'lxt':8} {only[1]:18} {only[0]:8} {against_lxt(*only):.1e}")
        return
    for family in ("bert", "gpt2", "llama"):
        print(f"{'eager':8} {'attention weights':18} {family:8} {against_eager(family):.1e}", flush=True)
    if find_spec("captum"):
        for family in ("bert", "gpt2", "llama", "qwen3"):
            print(f"{'captum':8} {'gradient-x-input':18} {family:8} {against_captum(family):.1e}", flush=True)
    if find_spec("lxt"):
        for family, method in LXT:
            subprocess.run([sys.executable, __file__, "--only", family, method], check=True)


if __name__ == "__main__":
    main()
