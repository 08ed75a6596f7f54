"""Which answer a model gives if a document contradicts training: the table `knowledge_conflict`."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld
from infoflow.foundation import NUM_BLOCKS, current_display
from infoflow.representations import TunedLens
from infoflow.results import ratio_estimate

from ._answers import answer_log_probabilities
from ._blocks import fact_blocks
from ._fact_lens import fact_lens, lens_answers, require_lens
from ._fact_states import half_of_entities, states_at
from ._groups import EVERY_WEIGHT, fact_groups, group_rows, sampled_facts
from ._inputs import FactInputs
from ._knowledge import MOST_FACTS
from ._readings import FactReadings
from ._tables import KNOWLEDGE_CONFLICT

CONFLICT_KINDS = ("trained", "changed", "held out")
"""Kinds of facts that occur in a passage."""
_OUTPUT = -1


def knowledge_conflict(
    reader: PreTrainedModel,
    world: FactWorld,
    tokenizer: Any,
    *,
    kinds: Collection[str] = CONFLICT_KINDS,
    lens: TunedLens | None = None,
    most: int = MOST_FACTS,
    seed: int = 0,
) -> pd.DataFrame:
    r"""How often a model answers as trained, and how often as its document says, if these differ.

    | metric             | value                                                              | a guess |
    |--------------------|--------------------------------------------------------------------|---------|
    | old                | share answered with the true object, which training asked for      | 1 / m   |
    | document           | share answered with the other one, which the passage says          | 1 / m   |
    | memorisation_ratio | old / (old + document) of counts; NaN where nothing is either      | 1/2     |
    | difference         | \(\log p(o') - \log p(o)\), mean, o′ of the document; at the output | 0       |
    |                    | (`layer` −1), and at each state by the tuned lens                  |         |

    The lens is measured on half of the entities and trained on the others, so its last state covers fewer facts than
    the rows of the output. `count` of the ratio is the number of questions with one of the two answers.

    Args:
        reader: A BERT with the head of a masked LM, in evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts; those without a passage are left out.
        lens: A tuned lens; default: trained here, see `fact_lens`.
        most: Maximum number of facts per kind and exposure.
        seed: Seeds all training.

    Raises:
        UserError: No fact occurs in a passage, the lens has another shape, or the world has too few entities.

    Source: the ratio is from [@longpre2021entity].
    """
    lens = lens or fact_lens(reader, world, tokenizer, seed=seed)
    require_lens(lens, reader)
    of_kind = [fact for fact in world.facts if fact.kind in kinds]
    facts = sampled_facts(world, most, of_kind)
    inputs = FactReadings(model=reader, world=world, tokenizer=tokenizer, facts=facts).inputs("conflict")
    rows = list(_answered(answer_log_probabilities(reader, inputs), inputs))
    half = half_of_entities(world)
    measured = inputs.take(np.flatnonzero([fact.entity not in half for fact in inputs.facts]))
    logs = lens_answers(reader, states_at(reader, measured, measured.masks), measured, lens)
    for layer, of_layer in enumerate(logs):
        rows += [{**row, "layer": layer} for row in _differences(of_layer, measured)]
    return KNOWLEDGE_CONFLICT.conform(pd.DataFrame(rows))


def _answered(logs: np.ndarray, inputs: FactInputs) -> Iterator[dict[str, Any]]:
    """Rows about the output."""
    said, chance = logs.argmax(axis=1), 1 / np.isfinite(logs).sum(axis=1)
    answered = {"old": said == inputs.answers, "document": said == inputs.others}
    for metric, right in answered.items():
        for row in group_rows(inputs.facts, right.astype(float), chance, "share"):
            yield {**row, "layer": _OUTPUT, "metric": metric}
    blocks = fact_blocks(inputs.facts)
    for group in fact_groups(inputs.facts):
        old, read = (np.bincount(blocks[group.rows], one[group.rows], NUM_BLOCKS) for one in answered.values())
        if not (old + read).any() and group.weight == EVERY_WEIGHT:
            current_display().note(
                f"The memorisation ratio of {group.facts} facts is undefined: no answer is one of the two objects."
            )
        numbers = ratio_estimate(old, old + read, 0.5, "share")
        keys = {"facts": group.facts, "weight": group.weight, "layer": _OUTPUT, "metric": "memorisation_ratio"}
        yield {**keys, **numbers}
    yield from ({**row, "layer": _OUTPUT} for row in _differences(logs, inputs))


def _differences(logs: np.ndarray, inputs: FactInputs) -> Iterator[dict[str, Any]]:
    rows = np.arange(len(inputs))
    values = logs[rows, inputs.others] - logs[rows, inputs.answers]
    yield from ({**row, "metric": "difference"} for row in group_rows(inputs.facts, values, np.zeros(len(rows))))
