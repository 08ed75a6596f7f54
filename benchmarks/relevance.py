"""Relevance of all heads for every prediction of a sentence: seconds, and against captum's and lxt's nearest methods.

    .venv/bin/python benchmarks/relevance.py                       # about a minute on one thread
    PYTHONPATH=refs:refs/lxt-source .venv/bin/python benchmarks/relevance.py    # with captum and lxt beside it

    pip install --no-deps --target refs captum matplotlib contourpy cycler kiwisolver pyparsing pillow fonttools
    git clone https://github.com/rachtibat/LRP-eXplains-Transformers refs/lxt-source   # lxt 2.1 does not import

Prints one run on one thread,
on random models of the stated shape: seconds per sentence of each method, and ratios to the other libraries, which take
one backward pass for each prediction; the results are checked to agree. Absolute times are the machine's.
"""

import argparse
import time
import warnings
from importlib.util import find_spec

import torch

METHODS = ("voita", "gradient-x-input", "cp-lrp", "attn-lrp", "chefer", "alti", "rollout")


def encoder_decoder(width: int):
    """A translation model of six and six layers, as studies train them."""
    from transformers import BertConfig, BertLMHeadModel, BertModel, EncoderDecoderModel

    sizes = {"vocab_size": 4000, "hidden_size": width, "num_hidden_layers": 6, "num_attention_heads": 8}
    sizes |= {"intermediate_size": 4 * width, "max_position_embeddings": 128, "hidden_act": "relu"}
    decoder = BertLMHeadModel(BertConfig(**sizes, is_decoder=True, add_cross_attention=True))
    encoder = BertModel(BertConfig(**sizes), add_pooling_layer=False)
    module = EncoderDecoderModel(encoder=encoder, decoder=decoder)
    module.config.pad_token_id, module.config.decoder_start_token_id, module.config.eos_token_id = 0, 1, 2
    return module.eval()


def llama(width: int):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 4000, "hidden_size": width, "num_hidden_layers": 6, "num_attention_heads": 8}
    sizes |= {"num_key_value_heads": 4, "intermediate_size": 3 * width, "max_position_embeddings": 128}
    return LlamaForCausalLM(LlamaConfig(**sizes)).eval()


def seconds(function, repeats: int) -> tuple[float, object]:
    """The fastest of some runs, and what the last one gave."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        found = function()
        times.append(time.perf_counter() - started)
    return min(times), found


def by_captum(model, batch, positions: range) -> torch.Tensor:
    """Gradient times input of all heads, one backward pass for each prediction: (prediction, head)."""
    from captum.attr import LayerGradientXActivation

    module = model.module
    attentions = list(model.anatomy.attentions())
    layers = [module.get_submodule(one.output_projection) for one in attentions]
    ids = batch["input_ids"]
    embeds = module.get_input_embeddings()(ids).detach()
    others = {name: value for name, value in batch.items() if name != "input_ids"}

    def top_logit(embeds, position):
        return module(inputs_embeds=embeds, **others).logits[:, position].max(-1).values

    rows = []
    for position in positions:
        method = LayerGradientXActivation(lambda embeds, position=position: top_logit(embeds, position), layers)
        parts = method.attribute(embeds.requires_grad_(), attribute_to_layer_input=True)
        heads = [
            part.unflatten(-1, (one.num_heads, -1)).sum((0, 1, 3)) for part, one in zip(parts, attentions, strict=True)
        ]
        rows.append(torch.cat(heads).detach())
    return torch.stack(rows)


def by_lxt(model, batch, positions: range) -> torch.Tensor:
    """AttnLRP of all tokens through lxt's patches, one backward pass for each prediction: (prediction, token)."""
    embeds = model.module.get_input_embeddings()(batch["input_ids"]).detach()
    rows = []
    for position in positions:
        leaf = embeds.clone().requires_grad_()
        model.module(inputs_embeds=leaf, use_cache=False).logits[0, position].max().backward()
        rows.append((leaf * leaf.grad).sum(2)[0].detach())
        model.module.zero_grad()
    return torch.stack(rows)


def against_captum(model, batch, repeats: int) -> None:
    from infoflow.heads import relevance

    own, frame = seconds(lambda: relevance(model, batch, "gradient-x-input", normalise=None), repeats)
    steps = range(batch["decoder_input_ids"].shape[1])
    theirs, rows = seconds(lambda: by_captum(model, batch, steps), repeats)
    # A decoder attention that the top logits hardly depend on has rounding errors for signs: compare to the largest.
    error = (torch.tensor(frame["relevance"].to_numpy()) - rows.double().mean(0)).abs().max() / rows.abs().max()
    print(f"gradient-x-input: captum takes {theirs / own:.1f} times as long (largest difference {float(error):.0e})")


def against_lxt(width: int, tokens: int, repeats: int) -> None:
    from infoflow.heads import token_relevance
    from infoflow.models import load_model

    model = load_model(llama(width))
    batch = {"input_ids": torch.arange(5, 5 + tokens)[None]}
    own, frame = seconds(lambda: token_relevance(model, batch, "attn-lrp"), repeats)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lxt has optional parts
        from lxt.efficient import monkey_patch
        from transformers.models.llama import modeling_llama

        monkey_patch(modeling_llama)  # for good: this comparison comes last
    theirs, rows = seconds(lambda: by_lxt(model, batch, range(tokens)), repeats)
    error = (torch.tensor(frame["relevance"].to_numpy()).reshape(tokens, -1) - rows).abs().max() / rows.abs().max()
    print(f"attn-lrp: lxt takes {theirs / own:.1f} times as long (largest difference {float(error):.0e})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=12, help="in the source and in the target")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    from infoflow.heads import relevance
    from infoflow.models import load_model

    model = load_model(encoder_decoder(options.width))
    ids = torch.arange(5, 5 + options.tokens)[None]
    batch = {"input_ids": ids, "decoder_input_ids": ids + 20}
    print(f"6 + 6 layers, width {options.width}, {options.tokens} + {options.tokens} tokens, all predictions:")
    for method in METHODS:
        took, _ = seconds(lambda method=method: relevance(model, batch, method), options.repeats)
        print(f"  {method:18} {took:.3f} s per sentence")
    if find_spec("captum"):
        against_captum(model, batch, options.repeats)
    if find_spec("lxt"):
        against_lxt(options.width, options.tokens, options.repeats)


if __name__ == "__main__":
    main()
