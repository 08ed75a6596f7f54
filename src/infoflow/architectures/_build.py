"""A model of any family and layout, with one initialisation for all layouts of a family."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError, as_written, did_you_mean, hash64, require_memory

from ._family import AbstractFamily, Layout, ModelConfig
from ._registry import FAMILIES

Match = Literal["encoder", "depth"]
"""Single stacks have as many layers as an encoder, or ("depth") as an encoder and a decoder together."""
TWO_STACKS = ("encoder-decoder", "bidirectional-pair")
_COPIES = 4  # numbers held in training for every weight
_TABLES = ("position_embeddings", "wpe")
_LONGEST = 10_000.0


def build(
    family: str,
    layout: Layout,
    config: ModelConfig,
    vocabulary: Vocabulary,
    target_vocabulary: Vocabulary | None = None,
    *,
    seed: int = 0,
    match: Match = "encoder",
) -> PreTrainedModel:
    """A model with random weights; those that read the source equal the weights of the family's other layouts exactly.

    The family's reference layout is initialised from the seed, and the embeddings and blocks that read the source are
    copied from it by parameter name, so a model does not depend on which others are built. The global random state is
    preserved.

    Args:
        family: Name of the kind of block, one of `FAMILIES`.
        layout: The model's stacks.
        config: The model's shape.
        vocabulary: Vocabulary of the model's input (in an encoder-decoder, the encoder's).
        target_vocabulary: Vocabulary of the decoder in an encoder-decoder; default: the same.
        seed: Seeds the initialisation.
        match: `"encoder"` gives every stack `config.layers` layers, and a decoder with an encoder
            `config.decoder_depth`; `"depth"` gives a single stack as many layers as an encoder and a decoder have
            together, and its lower part equals each stack of a two-stack model.

    Raises:
        UserError: There is no such family, it has no such layout, or training it needs more memory than there is.
    """
    built = _family(family, layout)
    target, single = target_vocabulary or vocabulary, config.layers + (config.decoder_depth if match == "depth" else 0)
    layers = config.layers if layout in TWO_STACKS else single
    _check_memory(lambda: built.build(layout, config, vocabulary, target, layers))
    first = built.layouts[0]
    reference = _seeded(seed, "stack", lambda: built.build(first, config, vocabulary, target, single))
    model = _seeded(seed, "model", lambda: built.build(layout, config, vocabulary, target, layers))
    for places in (built.source_stack, built.second_stack):
        if layout in places:
            _copy_source_stack(reference, model, *places[layout])
    if config.sinusoidal_positions:
        fix_positions(model, config.sinusoidal_positions)
    if not config.elementwise_affine:
        fix_norms(model)
    if not config.tie_word_embeddings:
        untie(model)
    return model.train()


def _family(name: str, layout: Layout) -> AbstractFamily:
    if name not in FAMILIES:
        meant = did_you_mean(name, FAMILIES)
        raise UserError(
            f"No family of models is called {as_written(name)}.{meant} Choose one of: {', '.join(FAMILIES)}."
        )
    family = FAMILIES[name]
    if layout not in family.layouts:
        raise UserError(
            f"{name} has no layout {as_written(layout)}. It has: {', '.join(family.layouts)}.\n"
            "Choose another family, or an objective that asks for one of these."
        )
    return family


def _check_memory(make: Callable[[], PreTrainedModel]) -> None:
    """Refuse a model that is too large for this machine even without batches; `make` builds it without weights here."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in make().parameters())
    copies = 1 if torch.cuda.is_available() else _COPIES
    require_memory(
        parameters * 4 * copies,
        f"A model of {parameters:,} parameters needs 4 bytes for each, {copies} times (weights, gradients, two moments "
        "of Adam)",
        "Lower model.width, model.layers, model.feedforward or corpus.vocabulary.",
    )


def _seeded(seed: int, purpose: str, make: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hash64("initialisation", seed, purpose))
        return make()


def _copy_source_stack(reference: PreTrainedModel, model: PreTrainedModel, prefix: str, in_reference: str) -> None:
    values = dict(reference.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = values.get(in_reference + name.removeprefix(prefix)) if name.startswith(prefix) else None
            if value is not None:
                parameter.copy_(value)


def fix_norms(model: PreTrainedModel) -> None:
    """Fix every norm's gain at 1 and bias at 0, without gradients, so that it only standardises."""
    for module in model.modules():
        if type(module).__name__.endswith("Norm"):
            module.requires_grad_(False)


def untie(model: PreTrainedModel) -> None:
    """Untie each output matrix from its stack's token embeddings; it starts with the same values."""
    for stack in [module for module in model.modules() if isinstance(module, PreTrainedModel)]:
        output = stack.get_output_embeddings()
        if output is None or output.weight is not stack.get_input_embeddings().weight:
            continue
        for name, parameter in list(output.named_parameters()):  # BERT's bias is tied together with its matrix
            setattr(output, name, nn.Parameter(parameter.detach().clone()))
        stack.config.tie_word_embeddings = False


def sinusoids(positions: int, width: int) -> Float[Tensor, "position width"]:
    r"""Position vectors of sinusoids with amplitude 1 [@vaswani2017].

    $P_{p,2i} = \sin(p / 10000^{2i/d})$, $P_{p,2i+1} = \cos(p / 10000^{2i/d})$
    """
    angles = torch.arange(positions)[:, None] / _LONGEST ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width].float()


def fix_positions(model: PreTrainedModel, amplitude: float) -> None:
    """Put sinusoids into every position table, and freeze it.

    The original Transformer has amplitude 1, and token embeddings of standard deviation 1 (after the factor √d).
    """
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in _TABLES and isinstance(module, nn.Embedding):
            with torch.no_grad():
                module.weight.copy_(amplitude * sinusoids(*module.weight.shape))
            module.weight.requires_grad_(False)
