"""Attention, logit lens and direct logit attribution beside TransformerLens, which has a second code for each."""

import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from rows import IDS, POSITION, TARGET, Row, Sources, largest, tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from infoflow.heads import relevance
from infoflow.models import Model, load_model
from infoflow.models._tap import tap
from infoflow.representations import logit_lens

TOLERANCE = 1e-5
FAMILIES = ("gpt2", "llama", "gpt_neox", "qwen3", "bert")


def bridge_of(module: torch.nn.Module) -> Any:
    """The same weights in TransformerLens 4: its hooks and functions around Hugging Face's code."""
    from transformer_lens.model_bridge import TransformerBridge

    with tempfile.TemporaryDirectory() as folder:
        _save(module, folder)
        return TransformerBridge.boot_transformers(folder, device="cpu")


def _save(module: torch.nn.Module, folder: str) -> None:
    """The model, and a tokenizer of as many words: TransformerLens loads no model without one."""
    import transformers

    words = {f"w{index}": index for index in range(module.config.vocab_size)}
    special = {"unk_token": "w0", "bos_token": "w1", "eos_token": "w2", "pad_token": "w3"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "w0")), **special)
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def transformer_lens(sources: Sources) -> Iterator[Row]:
    """TransformerLens 4 on the families of the table, and on every other that both read."""
    for family in FAMILIES:
        module = tiny(family).float()
        yield from _compared("transformer-lens", family, module, bridge_of(module))
    yield from every_family()


def hooked_transformer(sources: Sources) -> Iterator[Row]:
    """TransformerLens 3, whose models have a forward pass of their own."""
    for family in FAMILIES:
        if family != "bert":  # its encoder has other hooks
            changes = {"head_dim": 4} if family == "llama" else {}  # it takes Llama's width by its heads
            module = tiny(family, **changes).float()
            yield from _compared("transformer-lens 3", family, module, _hooked(module))


def _hooked(module: torch.nn.Module) -> Any:
    from transformer_lens import HookedTransformer
    from transformer_lens import loading_from_pretrained as loading

    with tempfile.TemporaryDirectory() as folder:
        _save(module, folder)
        config = loading.get_pretrained_model_config(folder, device="cpu")
        weights = loading.get_pretrained_state_dict(folder, config, hf_model=module)
    config.tokenizer_name = None
    hooked = HookedTransformer(config)
    hooked.load_and_process_state_dict(
        weights, fold_ln=False, center_writing_weights=False, center_unembed=False, fold_value_biases=False
    )
    return hooked


def _compared(package: str, family: str, module: torch.nn.Module, theirs: Any) -> Iterator[Row]:
    model = load_model(module)
    with torch.no_grad():
        _, cache = theirs.run_with_cache(IDS)

        def row(function: str, what: str, difference: float) -> Row:
            compared = f"{what}: {family}, random, three layers, float32"
            return Row(
                function=function, package=package, compared=compared, difference=difference, tolerance=TOLERANCE
            )

        yield row("models.tap", "attention weights", attention_difference(model, cache))
        if family != "bert":  # no unembedding directly after the last block
            yield row("representations.logit_lens", "logit lens of every layer", lens_difference(model, theirs, cache))
            yield row(
                "heads.relevance",
                "direct logit attribution of every head",
                attribution_difference(model, theirs, cache),
            )


def attention_difference(model: Model, cache: Any) -> float:
    with tap(model, attention=True) as seen:
        model.module(input_ids=IDS)
    (found,) = seen.attention.values()
    return max(largest(ours, cache[f"blocks.{layer}.attn.hook_pattern"]) for layer, ours in enumerate(found))


def lens_difference(model: Model, theirs: Any, cache: Any) -> float:
    """The states of every layer through TransformerLens's final norm and unembedding."""
    return largest(_lens_of(model), _their_lens(theirs, cache), relative=True)


def _lens_of(model: Model) -> Tensor:
    return torch.stack([reading.logits for reading in logit_lens(model, IDS)])


def _their_lens(theirs: Any, cache: Any) -> Tensor:
    if hasattr(cache, "logit_lens"):
        return cache.logit_lens(positions=None).values[:, 0]
    return theirs.unembed(theirs.ln_final(cache.accumulated_resid().flatten(0, 1)))  # TransformerLens 3


def attribution_difference(model: Model, theirs: Any, cache: Any) -> float:
    """Every head's part in one logit, by TransformerLens's linearised final norm."""
    heads = cache.stack_head_results(pos_slice=POSITION)
    scaled = cache.apply_ln_to_stack(heads, layer=-1, pos_slice=POSITION)
    gain = _gain(theirs)
    expected = (scaled * gain) @ theirs.W_U[:, TARGET]
    frame = relevance(model, {"input_ids": IDS}, "logit-attribution", POSITION, TARGET, normalise=None)
    return largest(frame["relevance"].to_numpy(), expected[:, 0], relative=True)


def _gain(theirs: Any) -> Tensor:
    """Weights of the final norm, which TransformerLens leaves out unless they are folded into the unembedding."""
    norm = theirs.ln_final
    return norm.w if hasattr(norm, "w") else norm.weight


def every_family() -> Iterator[Row]:
    """Attention and logit lens of each further family of causal LMs that both packages read."""
    from tiny import families, tiny_model
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    measures = {
        "attention weights": ("models.tap", lambda model, bridge, cache: attention_difference(model, cache)),
        "logit lens of every layer": ("representations.logit_lens", lens_difference),
    }
    found: dict[str, dict[str, float]] = {what: {} for what in measures}
    failed: dict[str, list[str]] = {what: [] for what in measures}
    apart: dict[str, list[float]] = {}
    for family in families():
        if family not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or family in FAMILIES:
            continue
        with torch.no_grad():
            try:
                module = tiny_model(family).float()
                if module.config.is_encoder_decoder:
                    continue
                model, bridge = load_model(module), bridge_of(module)
                _, cache = bridge.run_with_cache(IDS)
            except Exception:  # one of the two does not read it
                continue
            for what, (_, difference) in measures.items():
                try:
                    found[what][family] = difference(model, bridge, cache)
                except Exception as error:
                    failed[what].append(f"{family} ({type(error).__name__})")
            if found["logit lens of every layer"].get(family, 0) > TOLERANCE:
                logits = model.module(input_ids=IDS).logits[0]  # what both lenses should give at the top
                apart[family] = [largest(lens[-1], logits) for lens in (_lens_of(model), _their_lens(bridge, cache))]
    for what, (function, _) in measures.items():
        for agree in (True, False):
            names = [name for name, value in found[what].items() if (value <= TOLERANCE) == agree]
            if names:
                yield Row(
                    function=function,
                    package="transformer-lens",
                    compared=f"{what}, further families: {len(names)} ({', '.join(names)})",
                    difference=max(found[what][name] for name in names),
                    tolerance=TOLERANCE,
                    right=f"both; not compared: {', '.join(failed[what]) or 'none'}" if agree else _judged(apart),
                )


def _judged(apart: dict[str, list[float]]) -> str:
    """Who is right of two lenses that differ, by what they give at the top."""
    ours, theirs = (max(both[who] for both in apart.values()) for who in (0, 1))
    words = f"its top layer is {ours:.0e} from the model's logits, and TransformerLens's {theirs:.2g}"
    return f"{'ours' if ours < theirs else 'theirs'}: {words}"
