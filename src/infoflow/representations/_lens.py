"""The logit lens, and the tuned lens with its training: the prediction of a model that stops at a layer."""

# R row (a token occurrence), D model width, V vocabulary

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from infoflow.foundation import UserError, as_written, atomic_write
from infoflow.models import Model, Readout, model_inputs, readout, tap


@final
class TunedLens(nn.Module):
    r"""Maps a layer's states into the space of the last block's output, so that the model's head can read them.

    $$ \mathrm{lens}_l(h) = h + A_l h + b_l, \qquad \mathrm{lens}_L(h) = h $$

    | symbol     | here                               | space                          |
    |------------|------------------------------------|--------------------------------|
    | $h$        | `states`                           | a row per token, of any layer  |
    | $A_l, b_l$ | `translators[l].weight`, `.bias`   | width × width, width; 0 ≤ l < L |

    A and b start at zero, so an untrained tuned lens is the logit lens, and weight decay pulls it towards the logit
    lens. `fit_tuned_lens` trains it.

    Source: [@belrose2023], following their code; the paper's A is our I + A.
    """

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.translators = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    @classmethod
    def of(cls, model: Model) -> "TunedLens":
        """An untrained lens for the stack of `model` with the output head, on its device."""
        stack = model.anatomy.predicts
        return cls(len(stack.layers), stack.width).to(model.device)

    @property
    def num_layers(self) -> int:
        """Number of blocks L; states are numbered 0..L."""
        return len(self.translators)

    def forward(self, states: Float[Tensor, "*rows width"], layer: int) -> Float[Tensor, "*rows width"]:
        """Translated states of one layer, 0..L; those of layer L are unchanged."""
        if layer == self.num_layers:
            return states
        states = states.float()  # of a half-precision model
        return states + self.translators[layer](states)

    def save(self, path: Path | str, model: Model) -> None:
        """Write the translators to a safetensors file that records their model."""
        facts = {"kind": "tuned-lens", "version": "1", "model": model.digest, "name": model.name}
        facts["shape"] = json.dumps([self.num_layers, self.width])
        with atomic_write(path) as temporary:
            save_file({name: value.contiguous() for name, value in self.state_dict().items()}, temporary, facts)

    @classmethod
    def load(cls, path: Path | str, model: Model) -> "TunedLens":
        """Load a lens that `save` wrote.

        Raises:
            UserError: There is no such file, it is not a tuned lens, or it belongs to another model.
        """
        facts, tensors = _read(Path(path))
        if facts.get("kind") != "tuned-lens":
            raise UserError(f"{path} is not a tuned lens. Give a file that TunedLens.save wrote.")
        if facts.get("model") != model.digest:
            raise UserError(
                f"The lens in {path} was trained on {facts.get('name')} (weights {facts.get('model')}). Got "
                f"{model.name} (weights {model.digest}): a lens reads only the model it was trained on. Train another."
            )
        try:
            num_layers, width = json.loads(facts["shape"])
            if len(tensors) > 2 * num_layers or width > max(tensor.numel() for tensor in tensors.values()):
                raise ValueError("its shape is not that of its tensors")
            lens = cls(num_layers, width)
            lens.load_state_dict(tensors)
        except (KeyError, ValueError, TypeError, RuntimeError, RecursionError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"The lens in {path} is damaged: {reason}. Train it again.") from None
        return lens.to(model.device)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise UserError(f"No tuned lens at {path}. Check the path.")
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:
        raise UserError(f"{path} is not a safetensors file: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LensReading:
    """The prediction of one layer."""

    layer: int  # state 0..L; 0 = embeddings
    logits: Float[Tensor, "position vocabulary"]  # the chosen positions, sentence by sentence


def logit_lens(
    model: Model,
    input_ids: Int[Tensor, "batch token"],
    attention_mask: Int[Tensor, "batch token"] | None = None,
    decoder_input_ids: Int[Tensor, "batch step"] | None = None,
    *,
    positions: Bool[Tensor, "batch position"] | None = None,
    lens: TunedLens | None = None,
) -> Iterator[LensReading]:
    r"""Yield what the model's own head predicts from the states of each layer, from the embeddings to the top.

    $$ \mathrm{logits}_l = r(h_l), \qquad \mathrm{logits}_L = \text{the model's logits} $$

    r is everything after the last block (see `models.readout`): the final norm and unembedding of a causal LM, or the
    whole prediction head of a masked LM. For an encoder–decoder the states are the decoder's. Only the logits of one
    layer are in memory at a time; choose `positions` if even these are too large (positions × vocabulary).

    Args:
        model: A model with an output head.
        input_ids: Token ids; of the source sentence for an encoder–decoder.
        attention_mask: 0 at padding.
        decoder_input_ids: Decoder input of an encoder–decoder.
        positions: Mask of tokens of the predicting stack; by default all except padding.
        lens: A tuned lens; by default states are read as they are.

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


def no_readout(model: Model) -> str | None:
    """Why the model's states cannot be read as predictions, or None."""
    try:
        readout(model)
    except UserError as error:
        return str(error)
    return None


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


_LOGITS = 1 << 22  # logits in memory at a time


@dataclass(frozen=True, kw_only=True, slots=True)
class LensTraining:
    """How a tuned lens is trained.

    The optimiser is that of the authors' code: SGD with Nesterov momentum, a learning rate of 1 times (1 − momentum),
    weight decay, gradient clipping over all layers together, and a linear decay of the rate to zero. The authors run
    250 steps of 2^18 = 262,144 tokens; the default here is affordable on a laptop for every model of a study.
    """

    steps: int = 200
    tokens: int = 64  # per step
    learning_rate: float = 1.0  # times (1 − momentum), which undoes how PyTorch scales momentum
    momentum: float = 0.9
    weight_decay: float = 1e-3
    clip: float = 1.0  # norm of the gradient of all layers together

    def __post_init__(self) -> None:
        for name in ("steps", "tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of a lens must be at least 1. Got {getattr(self, name)}.")


def fit_tuned_lens(
    read: Readout, batches: Iterable[Float[Tensor, "layer row width"]], training: LensTraining | None = None
) -> TunedLens:
    r"""Train a tuned lens on the states of `batches`, with one step per batch.

    $$ \min_{A, b} \; \sum_{l < L} \mathbb E \, \mathrm{KL}(p \,\|\, q_l), \qquad
       p = \mathrm{softmax}\, r(h_L), \quad q_l = \mathrm{softmax}\, r(h_l + A_l h_l + b_l) $$

    with r the model's readout and h_l the states of one token. The model's weights are unchanged; the result depends
    only on the batches.

    Args:
        read: From `models.readout(model)`.
        batches: States 0..L of some tokens, one tensor per step (further ones are not consumed).
        training: Steps and optimiser.

    Raises:
        UserError: There are fewer batches than steps.

    Source: [@belrose2023].
    """
    training = training or LensTraining()
    layers, steps = len(read.stack.layers), 0
    lens = TunedLens(layers, read.stack.width)
    optimizer = torch.optim.SGD(
        lens.parameters(),
        lr=training.learning_rate * (1 - training.momentum),
        momentum=training.momentum,
        nesterov=training.momentum > 0,
        weight_decay=training.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / training.steps)
    for states_LRD in batches:
        lens.to(states_LRD.device)
        optimizer.zero_grad()
        accumulate_gradients(lens, read, states_LRD)
        nn.utils.clip_grad_norm_(lens.parameters(), training.clip)
        optimizer.step()
        schedule.step()
        steps += 1
        if steps == training.steps:
            return lens.eval()
    raise UserError(f"A tuned lens of {training.steps} steps needs as many batches of states. Got {steps}.")


def accumulate_gradients(lens: TunedLens, read: Readout, states: Float[Tensor, "layer row width"]) -> None:
    """Add the gradient of the mean divergence, summed over layers, to the translators' `grad`.

    The gradient of KL(p || q) with respect to the logits of q is q − p, so no graph is kept after the softmax.
    """
    num_rows = states.shape[1]
    for rows_LRD in row_chunks(states, read):
        with torch.no_grad():
            final_RV = read(rows_LRD[-1]).float().softmax(dim=-1)
        for layer, translator in enumerate(lens.translators):
            with torch.enable_grad():
                logits_RV = read(lens(rows_LRD[layer], layer)).float()
            towards_RV = logits_RV.detach().softmax(dim=-1).sub_(final_RV).div_(num_rows)
            torch.autograd.backward(logits_RV, towards_RV, inputs=list(translator.parameters()))


def row_chunks(states: Float[Tensor, "layer row width"], read: Readout) -> Iterator[Float[Tensor, "layer chunk width"]]:
    """Rows in chunks whose logits fit into memory, because a vocabulary may be a thousand times as wide as a state."""
    yield from states.split(max(1, _LOGITS // read.vocabulary_size), dim=1)
