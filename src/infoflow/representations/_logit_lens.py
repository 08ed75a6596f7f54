"""The logit lens: a model's prediction if it stopped at a layer."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import UserError, as_written
from infoflow.models import Model, Readout, model_inputs, readout, tap

from ._tuned_lens import TunedLens


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LensReading:
    """The prediction of one layer."""

    layer: int  # state 0..L; 0 = embeddings
    logits: Float[Tensor, "position vocabulary"]
    """The chosen positions, sentence by sentence."""


def logit_lens(
    model: Model,
    input_ids: Int[Tensor, "batch token"],
    attention_mask: Int[Tensor, "batch token"] | None = None,
    decoder_input_ids: Int[Tensor, "batch step"] | None = None,
    *,
    positions: Bool[Tensor, "batch position"] | None = None,
    lens: TunedLens | None = None,
) -> Iterator[LensReading]:
    r"""The model's own head on the states of every layer, from the embeddings to the top.

    $$ \mathrm{logits}_l = r(h_l), \qquad \mathrm{logits}_L = \text{the model's logits} $$

    r is everything after the last block (see `models.readout`): the final norm and unembedding of a causal LM, the
    whole prediction head of a masked LM. For an encoder–decoder the states are the decoder's. Only one layer's logits
    exist at a time; choose `positions` if even these are too large (positions × vocabulary).

    Args:
        model: A model with an output head.
        input_ids: Token ids; of the source sentence for an encoder–decoder.
        attention_mask: 0 at padding.
        decoder_input_ids: Decoder input of an encoder–decoder.
        positions: Mask of tokens of the predicting stack; default: all real ones.
        lens: A tuned lens; default: states are read as they are.

    Raises:
        UserError: The model has no output head, or `positions` differs in shape from its tokens.

    Source: [@nostalgebraist2020]; tuned: [@belrose2023].

    >>> from infoflow.models import load_model
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = load_model(GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2)))
    >>> [reading.logits.shape for reading in logit_lens(model, torch.tensor([[5, 6, 7]]))]
    [torch.Size([3, 40]), torch.Size([3, 40]), torch.Size([3, 40])]
    """
    read = readout(model)
    chosen = _positions(model, input_ids, attention_mask, decoder_input_ids, positions)
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(**model_inputs(model, input_ids, attention_mask, decoder_input_ids))
    layers = [states[chosen] for states in seen.hidden[read.stack.name]]
    seen.clear()
    return _readings(layers, read, lens)


def _readings(layers: list[Tensor], read: Readout, lens: TunedLens | None) -> Iterator[LensReading]:
    for layer, states in enumerate(layers):
        with torch.no_grad():  # a `yield` inside would disable gradients for the caller
            logits = read(states if lens is None else lens(states, layer))
        yield LensReading(layer=layer, logits=logits)


def _positions(
    model: Model, input_ids: Tensor, mask: Tensor | None, decoder_input_ids: Tensor | None, positions: Tensor | None
) -> Tensor:
    if decoder_input_ids is not None:
        real = torch.ones_like(decoder_input_ids, dtype=torch.bool)
    else:
        real = torch.ones_like(input_ids, dtype=torch.bool) if mask is None else mask != 0
    if positions is not None and positions.shape != real.shape:
        raise UserError(
            f"positions must have the shape of the tokens that are read, {as_written(list(real.shape))}. "
            f"Got {as_written(list(positions.shape))}."
        )
    return (real if positions is None else positions).to(model.device)
