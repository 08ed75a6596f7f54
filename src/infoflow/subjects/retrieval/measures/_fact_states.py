"""States of questions about facts at the relevant tokens: the masks, and the subject's last token."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld
from infoflow.foundation import UserError, hash64

from ._answers import BATCH
from ._inputs import FactInputs, TokenPart

Place = Literal["mask", "subject"]


def states_at(reader: PreTrainedModel, inputs: FactInputs, places: np.ndarray, batch: int = BATCH) -> Tensor:
    """States 0..L at tokens of each row, (state, row, place, width), on the CPU.

    Args:
        reader: A BERT, in evaluation mode.
        inputs: Questions with their documents.
        places: int (row, place), indices of tokens; the state at −1 is undefined.
        batch: Rows per forward pass.
    """
    return states_of(reader, inputs.tensors(), places, batch)


@torch.no_grad()
def states_of(reader: PreTrainedModel, named: dict[str, Tensor], places: np.ndarray, batch: int = BATCH) -> Tensor:
    """`states_at` for a BERT's arguments, padded at the end."""
    found = []
    for start in range(0, len(places), batch):
        rows = slice(start, start + batch)
        longest = int(named["attention_mask"][rows].sum(dim=1).max())
        inputs = {name: tensor[rows, :longest].to(reader.device) for name, tensor in named.items()}
        states = reader.base_model(**inputs, output_hidden_states=True).hidden_states
        at = torch.from_numpy(places[rows]).clamp(min=0).to(reader.device)
        of = torch.arange(len(at), device=reader.device)[:, None]
        found.append(torch.stack([one[of, at] for one in states]).cpu())
    return torch.cat(found, dim=1)


def last_of_subject(inputs: FactInputs) -> np.ndarray:
    """Position of the subject's last token in each question, int64 (row, 1)."""
    of_subject = inputs.parts == TokenPart.SUBJECT
    return (of_subject.shape[1] - 1 - of_subject[:, ::-1].argmax(axis=1))[:, None]


def half_of_entities(world: FactWorld) -> frozenset[int]:
    """Half of the entities, the same for every model: lenses and probes train on it, and are measured on the others.

    Raises:
        UserError: A kind has only one entity, so that there are no others.
    """
    entities = sorted(range(world.config.entities), key=lambda one: hash64("half", one))
    chosen = frozenset(entities[: len(entities) // 2])
    trained = {fact.entity for fact in world.of_kind("trained")}
    if not trained & chosen or not trained - chosen:
        raise UserError(
            f"A lens is trained on half of the entities and measured on the others, so both need trained facts. Got "
            f"{len(entities)} entities, {len(trained)} of them with some.\nGenerate a larger world."
        )
    return chosen
