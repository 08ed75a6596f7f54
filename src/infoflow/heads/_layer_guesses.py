"""What a model would predict at each token of a sentence if it stopped at a layer."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import printable
from infoflow.foundation import UserError
from infoflow.models import Model
from infoflow.representations import logit_lens

from ._sentence_tokens import ReadSentence


@dataclass(frozen=True, kw_only=True, slots=True)
class Guess:
    """A layer's likeliest token at one place."""

    text: str
    share: float  # its probability, 0 to 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerGuesses:
    """The best guess of each layer at each token of the stack that predicts, by the logit lens."""

    stack: str
    states: tuple[tuple[Guess, ...], ...]  # state 0..L (0 = embeddings), then token


def layer_guesses(model: Model, read: ReadSentence) -> LayerGuesses | None:
    """Best guesses of all layers for one sentence; None for a model whose states cannot be read as predictions.

    At each place the guess is about what the model is asked there: the next token, or, for a masked LM, this one.
    """
    stack = model.anatomy.predicts.name
    ids = [torch.tensor([[token.id for token in tokens]]) for tokens in read.tokens.values()]
    try:
        readings = logit_lens(model, ids[0], decoder_input_ids=ids[1] if len(ids) > 1 else None)
    except UserError:
        return None
    return LayerGuesses(stack=stack, states=tuple(best_guesses(model, reading.logits) for reading in readings))


def best_guesses(model: Model, logits: Float[Tensor, "token vocabulary"]) -> tuple[Guess, ...]:
    """The likeliest token at each place, and its probability."""
    best = logits.float().softmax(dim=-1).max(dim=-1)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple(Guess(text=token_name(model, token), share=share) for token, share in pairs)


def token_name(model: Model, token: int) -> str:
    """A token that a model predicts as a reader should see it: its text, or what its tokenizer calls it; its number
    where it has none."""
    tokenizer = model.target_tokenizer or model.tokenizer
    if tokenizer is None or token >= len(tokenizer):
        return str(token)
    # Byte-level names such as `ĠcafÃ©` are unreadable, and some tokens are no text at all.
    text = printable(str(tokenizer.decode([token]))).strip()
    if text and "\ufffd" not in text:
        return text
    name = tokenizer.convert_ids_to_tokens(token)
    return (printable(str(name)).strip() or str(token)) if name is not None else str(token)
