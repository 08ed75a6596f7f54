"""A model's answers if one block's feed-forward network gives every token the same output."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld

from ._answers import BATCH, FactReadings, answer_log_probabilities
from ._inputs import FactInputs, TokenPart
from ._knowledge import MOST_FACTS, answer_rows
from ._tables import KNOWLEDGE, sampled_facts

Places = Literal["subject", "all"]
PLACES: tuple[Places, ...] = ("subject", "all")
STORED = ("trained", "changed", "held out")
"""Kinds of facts with a document or training questions. Withheld facts are a control: they have nothing to lose."""
_METRICS = ("p1", "bits", "nats")


def knowledge_without_ffn(
    reader: PreTrainedModel,
    world: FactWorld,
    tokenizer: Any,
    *,
    documents: Collection[str] = ("none",),
    kinds: Collection[str] = STORED,
    most: int = MOST_FACTS,
    seed: int = 0,
) -> pd.DataFrame:
    r"""`knowledge` with the FFN output of one block replaced by its mean, for each block.

    $$ f_l(h_t) \leftarrow \frac{1}{|S|} \sum_{s \in S} f_l(h_s), \qquad t \in S $$

    S are the subject's tokens in the question ("subject"), or every token except padding ("all"), of all questions with
    one kind of document; f is the FFN's addition to the residual stream. The loss is the difference to the same rows of
    `knowledge`, whose replicates are paired if `most` and `seed` are equal.

    Args:
        reader: A BERT with the head of a masked LM, in evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        documents: Documents to use, except retrieved and own. Kinds of facts without such a document have no row.
        kinds: Kinds of facts.
        most: Maximum number of facts per kind and exposure.
        seed: Seeds random documents.

    Raises:
        UserError: A document is unknown, or no fact is left.
    """
    facts = [fact for fact in sampled_facts(world, most) if fact.kind in kinds]
    asked = FactReadings(model=reader, world=world, tokenizer=tokenizer, facts=facts, seed=seed)
    asked.require(documents)
    rows = list[dict[str, Any]]()
    for document in filter(asked.has, documents):
        inputs = asked.inputs(document)
        keys = {"document": document, "index": "as-trained", "reading": "without-ffn"}
        for layer, places, logs in _without_each(reader, inputs):
            found = answer_rows(logs, inputs)
            here = {**keys, "layer": layer, "places": places}
            rows += [{**row, **here} for row in found if row["metric"] in _METRICS]
    return KNOWLEDGE.conform(pd.DataFrame(rows))


def _without_each(reader: PreTrainedModel, inputs: FactInputs) -> Iterator[tuple[int, Places, np.ndarray]]:
    """Block, positions, and log-probabilities over choices with its FFN replaced there."""
    chosen: dict[Places, np.ndarray] = {places: _chosen(inputs, places) for places in PLACES}
    ffns = _ffns(reader)
    means = {places: _means(reader, ffns, inputs, where) for places, where in chosen.items()}
    for layer, ffn in enumerate(ffns):
        for places, where in chosen.items():
            logs = [
                _answers_with(reader, ffn, inputs.take(rows), where[rows], means[places][layer])
                for rows in _batches(len(inputs))
            ]
            yield layer, places, np.concatenate(logs)


def _answers_with(
    reader: PreTrainedModel, ffn: nn.Module, inputs: FactInputs, where: np.ndarray, mean: Tensor
) -> np.ndarray:
    with _replaced(ffn, torch.from_numpy(where).to(reader.device), mean):
        return answer_log_probabilities(reader, inputs, batch=len(inputs))


def _chosen(inputs: FactInputs, places: Places) -> np.ndarray:
    """Bool (row, token): where outputs are replaced."""
    return inputs.parts == TokenPart.SUBJECT if places == "subject" else inputs.parts != TokenPart.PAD


@torch.no_grad()
def _means(reader: PreTrainedModel, ffns: list[nn.Module], inputs: FactInputs, where: np.ndarray) -> list[Tensor]:
    """Each block's mean output (width,) over the chosen tokens."""
    seen: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, _args: Any, output: Tensor) -> None:
        seen[module] = output

    handles = [ffn.register_forward_hook(keep) for ffn in ffns]
    sums: list[Any] = [0.0] * len(ffns)
    try:
        for rows in _batches(len(inputs)):
            reader.base_model(**inputs.take(rows).tensors(reader.device))
            kept = torch.from_numpy(where[rows]).to(reader.device)
            sums = [total + seen[ffn][kept].double().sum(dim=0) for total, ffn in zip(sums, ffns, strict=True)]
    finally:
        for handle in handles:
            handle.remove()
    return [total / int(where.sum()) for total in sums]


def _ffns(reader: PreTrainedModel) -> list[nn.Module]:
    """The module in each block whose output joins the residual stream."""
    return [
        block.get_submodule("output.dense") for block in reader.base_model.get_submodule("encoder.layer").children()
    ]


@contextmanager
def _replaced(ffn: nn.Module, where: Tensor, mean: Tensor) -> Iterator[None]:
    """Replaces outputs by `mean` at the chosen tokens (row, token); trailing padding may have been cut."""

    def instead(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        return torch.where(where[:, : output.shape[1], None], mean.to(output), output)

    handle = ffn.register_forward_hook(instead)
    try:
        yield
    finally:
        handle.remove()


def _batches(num: int) -> list[np.ndarray]:
    return [np.arange(start, min(start + BATCH, num)) for start in range(0, num, BATCH)]
