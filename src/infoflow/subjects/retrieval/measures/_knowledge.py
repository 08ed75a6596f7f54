"""A model's answers about facts, with each document: the table `knowledge`."""

from collections.abc import Collection, Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import Scale
from infoflow.objectives import stored_bits

from ..models import Library
from ._elicited import elicitation_entities
from ._groups import group_rows, sampled_facts
from ._inputs import FactInputs
from ._readings import OWN, FactReadings, Level
from ._tables import KNOWLEDGE

Reading = Literal["raw", "elicited"]
MOST_FACTS = 150  # per kind and exposure; the standard error of a share of .5 is then .04
_EDITED_KINDS = ("changed", "later")


def knowledge(
    model: Any,
    world: FactWorld,
    tokenizer: Any,
    *,
    edited: bool = False,
    reading: Reading = "raw",
    documents: Collection[str] | None = None,
    facts: Collection[Fact] | None = None,
    most: int = MOST_FACTS,
    k: int = 2,
    level: Level = "sequence",
    seed: int = 0,
    library: Library | None = None,
) -> pd.DataFrame:
    r"""How often and how confidently each kind of fact is answered, with each document.

    | metric | value                                                               | a guess |
    |--------|---------------------------------------------------------------------|---------|
    | p1     | share of questions whose likeliest object is the right one          | 1 / m   |
    | bits   | \(\log_2 m + \log_2 p(o)\), `stored_bits`, mean, unclipped          | 0       |
    | nats   | \(-\log p(o)\), mean                                                | log m   |
    | p1_old | of facts that change or come later: share answered as before        | 1 / m   |
    | p1_new | of these: share answered as the edited index says                   | 1 / m   |

    p is renormalised over the m objects of the relation. Questions use the test wordings, two per fact. Documents are
    those of `fact_inputs`, and "own": marginalised over all candidates and the null passage, as the model itself reads.
    "retrieved" is its best candidate by the prior. The index of a retriever is built here. A kind of fact without such
    a document (gold of withheld facts) has no row.

    Args:
        model: A masked LM in evaluation mode, or a `RetrievalModel`, which the documents retrieved and own need.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        edited: Read the edited index instead; only facts that change or come later are then used.
        reading: Name of this reading; `elicited` tests the model after a short training.
        documents: Documents to use; default: all that the model has.
        facts: Facts to use; default: all, or for an elicited model all facts of entities that it was not trained on.
        most: Maximum number of facts per kind and exposure.
        k: Passages per search, as in training.
        level: Level of the marginalisation, as in training.
        seed: Seeds random documents.
        library: Its index replaces one built here; see `question_candidates`. With `edited` it must hold the edited
            passages.

    Raises:
        UserError: A document is unknown or needs a `RetrievalModel`, or no fact is left.
    """
    asked = FactReadings(
        model=model,
        world=world,
        tokenizer=tokenizer,
        facts=sampled_facts(world, most, _asked(world, edited, reading, facts)),
        edited=edited,
        k=k,
        level=level,
        seed=seed,
        passage_library=library,
    )
    rows = list[dict[str, Any]]()
    for document, inputs, logs in asked.read(_documents(asked, reading) if documents is None else documents):
        index = "edited" if edited else "as-trained"
        keys = {"document": document, "index": index, "reading": reading, "layer": -1, "places": ""}
        rows += [{**row, **keys} for row in answer_rows(logs, inputs, edited)]
    return KNOWLEDGE.conform(pd.DataFrame(rows))


def answer_rows(logs: np.ndarray, inputs: FactInputs, edited: bool = False) -> Iterator[dict[str, Any]]:
    """Rows `facts, weight, metric` and the estimate, from log-probabilities over choices (row, choice)."""
    facts, rows = inputs.facts, np.arange(len(inputs))
    choices = np.isfinite(logs).sum(axis=1) if len(logs) else np.empty(0)
    said, right, chance = logs.argmax(axis=1), logs[rows, inputs.answers], 1 / choices
    values: dict[str, tuple[np.ndarray, np.ndarray, Scale]] = {}
    if not edited:
        values["p1"] = said == inputs.answers, chance, "share"
        values["bits"] = stored_bits(right, choices.astype(float)).numpy(), np.zeros(len(rows)), "any"
        values["nats"] = -right, np.log(choices), "positive"
    for metric, (numbers, baseline, scale) in values.items():
        yield from ({**row, "metric": metric} for row in group_rows(facts, numbers.astype(float), baseline, scale))
    later = np.array([fact.kind in _EDITED_KINDS for fact in facts])
    if not later.any():
        return
    now, then = inputs.answers[later], np.array([fact.edited for fact in facts])[later]
    of_later = [fact for fact, one in zip(facts, later, strict=True) if one]
    for metric, wanted in (("p1_old", now), ("p1_new", then)):
        numbers = (said[later] == wanted).astype(float)
        yield from ({**row, "metric": metric} for row in group_rows(of_later, numbers, chance[later], "share"))


def _asked(world: FactWorld, edited: bool, reading: Reading, facts: Collection[Fact] | None) -> Collection[Fact]:
    """The facts given, else all that the reading and the index cover."""
    if facts is not None:
        return facts
    taught = elicitation_entities(world) if reading == "elicited" else frozenset()
    return [one for one in world.facts if one.entity not in taught and (not edited or one.kind in _EDITED_KINDS)]


def _documents(asked: FactReadings, reading: Reading) -> tuple[str, ...]:
    """All documents of the model, without those that an edited index or a short training do not affect."""
    wanted = ("none",) if reading == "elicited" else ("none", "gold", "retrieved", OWN) if asked.edited else ()
    return tuple(one for one in asked.available if not wanted or one in wanted)
