"""Relevance beside captum, lxt, Hugging Face's own attention, and the LLM Transparency Tool."""

import math
import sys
import types
from collections.abc import Iterator
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import torch
from rows import IDS, POSITION, TARGET, Row, Sources, largest, tiny
from torch import Tensor

from infoflow.heads import relevance
from infoflow.heads._relevance import alti_contributions, token_relevance
from infoflow.heads._relevance._methods import _quotient, _scaled_gradient
from infoflow.heads._relevance._mixing import sublayers
from infoflow.heads._relevance._nodes import Norm
from infoflow.models import load_model
from infoflow.models._tap import tap

FAMILIES = ("bert", "gpt2", "llama", "gpt_neox", "qwen3")
EXACT = 1e-9
MODEL = "random model of three layers in float64"


def captum(sources: Sources) -> Iterator[Row]:
    """Gradient times input: of every head's output, and of the embeddings."""
    from captum.attr import LayerGradientXActivation

    for family in FAMILIES:
        module = tiny(family)
        model = load_model(module)
        frame = relevance(model, {"input_ids": IDS}, "gradient-x-input", POSITION, TARGET, normalise=None)
        embeds = module.get_input_embeddings()(IDS).detach().requires_grad_()

        def logit(embeds: Tensor, module: torch.nn.Module = module) -> Tensor:
            return module(inputs_embeds=embeds).logits[:, POSITION, TARGET]

        expected = []
        for one in model.anatomy.attentions():
            method = LayerGradientXActivation(logit, module.get_submodule(one.output_projection))
            parts = method.attribute(embeds, attribute_to_layer_input=True)
            expected.append(parts.unflatten(-1, (one.num_heads, -1)).sum((0, 1, 3)))
        yield Row(
            function="heads.relevance",
            package="captum",
            compared=f"gradient-x-input of every head, LayerGradientXActivation: {family}, {MODEL}",
            difference=largest(frame["relevance"].to_numpy(), torch.cat(expected), relative=True),
            tolerance=EXACT,
        )


def eager(sources: Sources) -> Iterator[Row]:
    """Attention weights, which BertViz draws as Hugging Face's eager attention returns them."""
    for family in FAMILIES:
        module = tiny(family)
        model = load_model(module)
        with torch.no_grad(), tap(model, attention=True) as seen:
            module(input_ids=IDS)
        (found,) = seen.attention.values()
        module.set_attn_implementation("eager")
        expected = module(input_ids=IDS, output_attentions=True).attentions
        yield Row(
            function="models.tap",
            package="transformers",
            compared=f"attention weights, eager with output_attentions: {family}, {MODEL}",
            difference=largest(torch.stack(list(found)), torch.stack(expected)),
            tolerance=1e-6,  # some families compute the softmax in float32
        )


# lxt: whole models through its patches, and rule by rule.


def lxt(sources: Sources) -> Iterator[Row]:
    """CP-LRP and AttnLRP. lxt patches whole families for good, so each model has a process of its own."""
    sys.path.insert(0, str(sources.lxt))
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for family in ("llama", "qwen3", "gpt2"):
            for method in ("cp-lrp", "attn-lrp"):
                yield Row(
                    function="heads.token_relevance",
                    package="lxt",
                    compared=f"{method} of every token, by lxt.efficient: {family}, {MODEL}",
                    difference=pool.apply(_of_lxt, (str(sources.lxt), family, method)),
                    tolerance=1e-6,
                )
    yield from lxt_rules(sources)


def _of_lxt(source: str, family: str, method: str) -> float:
    sys.path.insert(0, source)
    module = tiny(family)
    tokens = token_relevance(load_model(module), {"input_ids": IDS}, method, POSITION, TARGET)
    from lxt.efficient import monkey_patch

    rules = import_module(f"lxt.efficient.models.{family}")
    modeling = import_module(f"transformers.models.{family}.modeling_{family}")
    monkey_patch(modeling, patch_map=rules.attnLRP if method == "attn-lrp" else rules.cp_LRP)
    module.set_attn_implementation("eager")
    states = {}

    def leaf(block: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        states["first"] = (args[0] if args else kwargs["hidden_states"]).detach().requires_grad_()
        return (states["first"], *args[1:]), kwargs

    block = module.transformer.h[0] if family == "gpt2" else module.model.layers[0]
    block.register_forward_pre_hook(leaf, with_kwargs=True)
    module(input_ids=IDS).logits[0, POSITION, TARGET].backward()
    expected = (states["first"] * states["first"].grad).sum(2)[0]
    return largest(tokens["relevance"].to_numpy(), expected, relative=True)


def lxt_rules(sources: Sources) -> Iterator[Row]:
    """Each operation: lxt.explicit gives the relevance of the inputs, ours a gradient that is multiplied with them."""
    from lxt.efficient.rules import divide_gradient, identity_rule_implicit
    from lxt.explicit import functional

    draw = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    x, gain, bias = numbers(6, 8), numbers(8), numbers(8)
    wide = numbers(6, 8)
    for name, centred in (("layer_norm", True), ("rms_norm_identity", False)):
        norm = Norm(gain=gain, bias=bias if centred else None, epsilon=1e-5, centred=centred)
        made = norm(x)
        ours = _gradient_x_input(lambda x, norm=norm: norm(x, constant_scale=True), wide / made, x)[0]
        if centred:
            theirs = _relevance_of(lambda x: functional.layer_norm_grad_fn.apply(x, gain, bias, 1e-5, 0.0), wide, x)[0]
        else:
            theirs = _relevance_of(lambda x: functional.rms_norm_identity(x, gain, 1e-5), wide, x)[0]
        yield _rule("heads._relevance._nodes.Norm", f"norm with constant deviation: {name}", ours, theirs)

    gelu = torch.nn.functional.gelu
    ours = _gradient_x_input(lambda x: _quotient(x, gelu(x)), wide, x)[0]
    theirs = _gradient_x_input(lambda x: identity_rule_implicit(gelu, x), wide, x)[0]
    yield _rule("heads._relevance._methods._quotient", "activation: identity_rule_implicit", ours, theirs)

    gate, up = numbers(6, 8), numbers(6, 8)
    ours = _gradient_x_input(lambda a, b: _scaled_gradient(a * b, 0.5), wide / (gate * up), gate, up)
    theirs = _relevance_of(functional.mul2, wide, gate, up)
    yield _rule("heads._relevance._methods._scaled_gradient", "product of two inputs: mul2", ours, theirs)
    theirs = _gradient_x_input(lambda a, b: divide_gradient(a * b, 2), wide / (gate * up), gate, up)
    yield _rule("heads._relevance._methods._scaled_gradient", "product of two inputs: divide_gradient", ours, theirs)

    query, key, value = numbers(6, 8), numbers(7, 8), numbers(7, 8)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = (_scaled_gradient(query, 0.25), _scaled_gradient(key, 0.25), _scaled_gradient(value, 0.5))
        return (parts[0] @ parts[1].T / math.sqrt(8)).softmax(-1) @ parts[2]

    def explicit(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = functional.mul2(functional.matmul_fn.apply(query, key.T, False, 0.0), 1 / math.sqrt(8))
        return functional.matmul_fn.apply(functional.softmax(scores, -1), value, False, 0.0)

    made = attention(query, key, value)
    ours = _gradient_x_input(attention, wide / made, query, key, value)
    theirs = _relevance_of(explicit, wide, query, key, value)
    yield _rule(
        "heads._relevance._methods._scaled_gradient", "softmax attention: matmul, softmax, matmul", ours, theirs
    )


def _rule(function: str, compared: str, ours: Any, theirs: Any) -> Row:
    pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
    return Row(
        function=function,
        package="lxt",
        compared=f"Relevance through one operation, {compared}",
        difference=max(largest(a, b, relative=True) for a, b in pairs),
        tolerance=1e-6,
    )


def _relevance_of(operation: Any, relevance: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """What lxt.explicit passes back to the inputs."""
    leaves = tuple(value.clone().requires_grad_() for value in inputs)
    return torch.autograd.grad(operation(*leaves), leaves, relevance)


def _gradient_x_input(operation: Any, gradient: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    passed = _relevance_of(operation, gradient, *inputs)
    return tuple(value * part for value, part in zip(inputs, passed, strict=True))


# LLM Transparency Tool: shares of the parts that form a token after attention.


def transparency(sources: Sources) -> Iterator[Row]:
    """Its shares of a sum's parts against ALTI's; and its parts, which it computes from TransformerLens's values."""
    sys.path.insert(0, str(sources.transparency))
    sys.modules["typeguard"] = types.ModuleType("typeguard")  # newer versions do not read its annotations
    sys.modules["typeguard"].typechecked = lambda function: function
    contributions = import_module("llm_transparency_tool.routes.contributions")
    for family in ("bert", "gpt2", "llama"):
        module = tiny(family)
        model = load_model(module)
        (ours,) = alti_contributions(model, {"input_ids": IDS})
        found, theirs = [], []
        for one in sublayers(model, {"input_ids": IDS}):
            terms = one.terms(slice(None)).transpose(0, 1)
            theirs.append(contributions.get_contributions(terms, one.made, 1).T)
            found.append(ours[one.place])
        yield Row(
            function="heads.alti_contributions",
            package="LLM Transparency Tool",
            compared=f"get_contributions of our terms of the keys, norm 1: {family}, {MODEL}",
            difference=max(largest(a, b) for a, b in zip(found, theirs, strict=True)),
            tolerance=1e-4,
            right="both; it counts no share below 1e-5 of the absolute size, ours none below 0",
        )
    yield _transparency_parts()


def _transparency_parts() -> Row:
    """The parts of every key and head plus the output bias should add up to what the attention adds."""
    streamlit = types.ModuleType("streamlit")  # only its cache is used
    streamlit.cache_resource = lambda **options: lambda function: function
    sys.modules["streamlit"] = streamlit
    loading = types.ModuleType("transformer_lens.loading_from_pretrained")  # removed in TransformerLens 4
    loading.MODEL_ALIASES, loading.get_official_model_name = {}, str
    sys.modules["transformer_lens.loading_from_pretrained"] = loading
    decomposed = import_module("llm_transparency_tool.models.tlens_model").TransformerLensTransparentLlm.decomposed_attn
    from lens import bridge_of

    module = tiny("gpt2").float()
    bridge = bridge_of(module)
    _, cache = bridge.run_with_cache(IDS)
    tool = types.SimpleNamespace(
        _last_run=True,
        _model=bridge,
        _get_block=lambda layer, name: cache[f"blocks.{layer}.{name}"],
    )
    theirs = decomposed(tool, 0, 0)
    added = cache["blocks.0.hook_attn_out"][0] - bridge.blocks[0].attn.b_O
    (one, *_) = sublayers(load_model(module), {"input_ids": IDS})
    ours = torch.einsum("hts,hsd->td", one.attention.core.weights, one.written)
    return Row(
        function="heads._relevance._mixing.Sublayer.written",
        package="LLM Transparency Tool",
        compared="Sum of decomposed_attn over keys and heads against what the attention adds: gpt2",
        difference=largest(theirs.sum((1, 2)), added),
        tolerance=1e-5,
        right=f"ours: our parts add up, to {largest(ours, added):.0e}. The tool adds the values' bias to values that "
        "already contain it",
    )
