"""Where knowledge lies: the layer from which an answer can be read, and answers without the FFN of one block."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import isnan
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import FactWorld
from infoflow.foundation import (
    NUM_BLOCKS,
    Interval,
    Scale,
    UserError,
    current_display,
    replicate_weights,
    symmetric_interval,
)
from infoflow.models import Model, feed_forward_outputs, load_model, module_outputs
from infoflow.representations import HalvedClusters, TunedLens
from infoflow.results import estimate

from ..models import Library, evidence_entry
from ._answers import BATCH, OWN, FactReadings, answer_log_probabilities
from ._fact_lens import fact_lens, half_of_entities, lens_answers, moved_objects, probe_rows, require_lens, states_at
from ._inputs import FactInputs, TokenPart
from ._knowledge import MOST_FACTS, answer_rows
from ._tables import EVERY_WEIGHT, KNOWLEDGE, KNOWLEDGE_LENS, fact_blocks, fact_groups, group_rows, sampled_facts

LENS_KINDS = ("trained", "held out", "withheld")  # stored and readable; only readable; neither
_ROWS_PER_CLUSTER = 20
LEAST_QUESTIONS = 2 * _ROWS_PER_CLUSTER  # minimum number of questions: enough for two clusters
_CONTROLS = 5  # permutations over which the baseline is averaged
_AGAINST_NONE = ("gold", "retrieved")
Curves = Mapping[tuple[str, str], tuple[np.ndarray, FactInputs]]
"""By lens and document: log-probability of the right object, (state, row), and the inputs."""


def knowledge_lens(
    model: Any,
    world: FactWorld,
    tokenizer: Any,
    *,
    documents: Collection[str] | None = None,
    kinds: Collection[str] = LENS_KINDS,
    lens: TunedLens | None = None,
    clusters: bool = False,
    probes: bool = True,
    most: int = MOST_FACTS,
    k: int = 2,
    seed: int = 0,
    library: Library | None = None,
) -> pd.DataFrame:
    r"""The answer that a lens reads from every state at the mask, where it enters, and the accuracy of a linear probe.

    | lens          | metric            | value                                                              |
    |---------------|-------------------|--------------------------------------------------------------------|
    | logit, tuned  | probability       | p of the right object, renormalised over the relation's m          |
    |               | rank              | 1 + number of objects that are likelier                            |
    |               | p1                | share of questions whose likeliest object is the right one         |
    |               | half, centre      | `evidence_entry` of p(gold) − p(none) or p(retrieved) − p(none); for |
    |               |                   | none, of p(none) − 1 / m, which shows where memory is read; `layer`  |
    |               |                   | is −1                                                                |
    | clusters      | information       | of a state's cluster about the answer, see `information_rows`      |
    | probe         | accuracy, control | see `probe_rows`                                                   |

    Everything is measured on half of the entities; the tuned lens and the probes are trained on the others. `half` and
    `centre` are NaN, with a note, if the top gains less than .05; probes are NaN if there are too few facts. Clusters
    are left out, with a note, for fewer than forty questions. `kinds` may include facts that change later, which are
    ordinary trained facts until the index is edited. Probes are always tested on them.

    Args:
        model: A masked LM in evaluation mode, or a `RetrievalModel`, which also has the document "retrieved".
        world: World of the facts.
        tokenizer: The world's tokenizer.
        documents: Documents to use; default: all that the model has. "own" has no states of its own.
        kinds: Kinds of facts.
        lens: A tuned lens; default: trained here, see `fact_lens`.
        clusters: Whether to estimate information too. This takes four fifths of the time and is imprecise with fewer
            than thousands of facts.
        probes: Whether to train probes too.
        most: Maximum number of facts per kind and exposure.
        k: Passages per search, as in training.
        seed: Seeds random documents and all training.
        library: Library whose index is used instead of building one; see `question_candidates`.

    Raises:
        UserError: A document is unknown, the lens has another shape, or the world has too few entities.
    """
    half = half_of_entities(world)
    others = [fact for fact in world.facts if fact.entity not in half and fact.kind in kinds]
    facts = sampled_facts(world, most, others)
    options: Any = {"k": k, "seed": seed, "passage_library": library}
    readings = FactReadings(model=model, world=world, tokenizer=tokenizer, facts=facts, **options)
    chosen = [one for one in readings.available if one != OWN] if documents is None else documents
    readings.require(chosen)
    reader = readings.reader
    lens = lens or fact_lens(reader, world, tokenizer, seed=seed)
    require_lens(lens, reader)
    rows, curves = list[dict[str, Any]](), {}
    for document in (one for one in chosen if readings.has(one)):
        inputs = readings.inputs(document)
        states = states_at(reader, inputs, inputs.masks)
        for name, one in {"logit": None, "tuned": lens}.items():
            logs = lens_answers(reader, states, inputs, one)
            keys = {"document": document, "lens": name, "place": "mask"}
            rows += [{**row, **keys} for row in _read_rows(logs, inputs)]
            curves[name, document] = _right(logs, inputs), inputs
        if clusters and len(inputs) < LEAST_QUESTIONS:
            clusters = False
            current_display().note(
                f"Clusters of states need at least {LEAST_QUESTIONS} questions, and there are {len(inputs)}, so "
                "their information about the answer is left out."
            )
        if clusters:
            rows += list(information_rows(states, inputs, seed))
    entries = list(entry_rows(curves))
    _note_undefined(entries)
    rows += entries
    if probes:
        rows += list(probe_rows(reader, world, tokenizer, seed=seed))
    return KNOWLEDGE_LENS.conform(pd.DataFrame(rows))


def _note_undefined(entries: list[dict[str, Any]]) -> None:
    """Show a note that lists the facts and documents for which no depth is defined."""
    undefined = [
        f"{row['facts']} facts with the document {row['document']}"
        for row in entries
        if (row["lens"], row["metric"], row["weight"]) == ("tuned", "centre", EVERY_WEIGHT) and isnan(row["value"])
    ]
    if undefined:
        current_display().note(
            f"The layer at which the answer enters is undefined if the tuned lens gains less than .05: "
            f"{', '.join(undefined)}."
        )


def _right(logs: np.ndarray, inputs: FactInputs) -> np.ndarray:
    return logs[:, np.arange(len(inputs)), inputs.answers]


def _read_rows(logs: np.ndarray, inputs: FactInputs) -> Iterator[dict[str, Any]]:
    choices, right_of_layer = np.isfinite(logs[0]).sum(axis=1), _right(logs, inputs)
    for layer, of_layer in enumerate(logs):
        right = right_of_layer[layer]
        rank = 1 + (of_layer > right[:, None]).sum(axis=1)
        values: dict[str, tuple[np.ndarray, np.ndarray, Scale]] = {
            "probability": (np.exp(right), 1 / choices, "share"),
            "rank": (rank.astype(float), (choices + 1) / 2, "positive"),
            "p1": ((of_layer.argmax(axis=1) == inputs.answers).astype(float), 1 / choices, "share"),
        }
        for metric, (numbers, baseline, scale) in values.items():
            yield from group_rows(inputs.facts, numbers, baseline, scale, layer=layer, metric=metric)


def information_rows(states: Tensor, inputs: FactInputs, seed: int = 0) -> Iterator[dict[str, Any]]:
    r"""Rows of the metric information, \(I(\text{cluster}; o_1)\) in nats, for each kind of fact and each state.

    States at the first mask (`states`: state, row, target, width) are clustered, one cluster per twenty questions; o_1
    is the first token of the object. The estimate is corrected for the number of questions (`estimate_information`),
    and its interval includes possible remaining bias. The baseline is the mean over five permutations of the objects
    within each relation: it contains the information about the type of the object, and the same bias. The difference
    is information about the fact.
    """
    clusters = len(inputs) // _ROWS_PER_CLUSTER
    if clusters < 2:
        raise UserError(
            f"Clusters of states need at least {LEAST_QUESTIONS} questions. Got {len(inputs)}.\nUse more facts."
        )
    rows, blocks = np.arange(len(inputs)), fact_blocks(inputs.facts)
    tokens = inputs.candidates[rows, inputs.answers, 0]
    moved = [inputs.candidates[rows, moved_objects(inputs, seed + draw), 0] for draw in range(_CONTROLS)]
    for layer, of_layer in enumerate(states[:, :, 0]):
        found = HalvedClusters.fitted(of_layer.float(), clusters, blocks, seed)
        for group in (one for one in fact_groups(inputs.facts) if one.weight == EVERY_WEIGHT):
            part = found.of(group.rows)
            control = np.mean([part.corrected(one[group.rows]) for one in moved])
            numbers = part.estimate(tokens[group.rows]).columns(
                float(control), len(group.rows), units=len(np.unique(part.blocks))
            )
            keys = {"facts": group.facts, "weight": group.weight, "layer": layer, "metric": "information"}
            yield {**keys, "document": inputs.document, "lens": "clusters", "place": "mask", **numbers}


def entry_rows(curves: Curves) -> Iterator[dict[str, Any]]:
    """Rows of the metrics half and centre, for gold or retrieved against none, and for none against a guess.

    Questions without a gold passage are left out for gold. Replicates resample whole curves; `half` is a layer, so its
    interval extends at least one layer to either side.
    """
    for (lens, document), (logs, inputs) in curves.items():
        if document == "none":
            guesses = 1 / (inputs.candidates[:, :, 0] >= 0).sum(axis=1)
            yield from _rows(lens, document, np.exp(logs) - guesses, inputs)
        elif document in _AGAINST_NONE and (lens, "none") in curves:
            without, of_none = curves[lens, "none"]
            held = {fact.number for fact in inputs.facts}
            kept = [row for row, fact in enumerate(of_none.facts) if fact.number in held]
            yield from _rows(lens, document, np.exp(logs) - np.exp(without[:, kept]), inputs)


def _rows(lens: str, document: str, gains: np.ndarray, inputs: FactInputs) -> Iterator[dict[str, Any]]:
    """Rows of every group, from gains (state, row)."""
    blocks, weights = fact_blocks(inputs.facts), replicate_weights()
    for group in fact_groups(inputs.facts):
        here = blocks[group.rows]
        counts = np.bincount(here, minlength=NUM_BLOCKS)
        sums = np.stack([np.bincount(here, one[group.rows], NUM_BLOCKS) for one in gains])  # (state, block)
        value = evidence_entry(sums.sum(axis=1) / counts.sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = (weights @ sums.T) / (weights @ counts)[:, None]  # (replicate, state)
        entries = np.array([evidence_entry(one) if np.isfinite(one).all() else (np.nan, np.nan) for one in drawn])
        units, keys = int(np.count_nonzero(counts)), {"document": document, "lens": lens, "place": "mask"}
        for index, metric in enumerate(("half", "centre")):
            ends = None
            if metric == "half" and np.isfinite(value.half):
                ends = symmetric_interval(value.half, entries[:, index], (0.0, len(gains) - 1.0))
                ends = Interval(*(np.clip(end, 0.0, len(gains) - 1.0) for end in ends.reaching(value.half, 1.0)))
            numbers = estimate(value[index], entries[:, index], np.nan, int(counts.sum()), units=units, ends=ends)
            yield {"facts": group.facts, "weight": group.weight, "layer": -1, "metric": metric, **keys, **numbers}


# A model's answers if the FFN of one block gives every token the same output.

Places = Literal["subject", "all"]
PLACES: tuple[Places, ...] = ("subject", "all")
STORED = ("trained", "changed", "held out")
"""Kinds of facts. Withheld facts, which have neither document nor training question, are a control."""
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
    one kind of document; f is the FFN's addition to the residual stream. What is lost is the difference from the same
    rows of `knowledge`, whose replicates are paired if `most` and `seed` are equal.

    Args:
        reader: A BERT with the head of a masked LM, in evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        documents: Documents to use, not "retrieved" or "own". Kinds of facts without such a document have no row.
        kinds: Kinds of facts.
        most: Maximum number of facts per kind and exposure.
        seed: Seeds random documents.

    Raises:
        UserError: A document is unknown, or no fact is left.
    """
    facts = [fact for fact in sampled_facts(world, most) if fact.kind in kinds]
    readings = FactReadings(model=reader, world=world, tokenizer=tokenizer, facts=facts, seed=seed)
    readings.require(documents)
    rows = list[dict[str, Any]]()
    for document in filter(readings.has, documents):
        inputs = readings.inputs(document)
        keys = {"document": document, "index": "as-trained", "reading": "without-ffn"}
        for layer, places, logs in _without_each(reader, inputs):
            found = answer_rows(logs, inputs)
            here = {**keys, "layer": layer, "places": places}
            rows += [{**row, **here} for row in found if row["metric"] in _METRICS]
    return KNOWLEDGE.conform(pd.DataFrame(rows))


def _without_each(reader: PreTrainedModel, inputs: FactInputs) -> Iterator[tuple[int, Places, np.ndarray]]:
    """For each block and set of tokens: log-probabilities over choices with the block's FFN replaced at the tokens."""
    parts = inputs.parts
    chosen: dict[Places, np.ndarray] = {"subject": parts == TokenPart.SUBJECT, "all": parts != TokenPart.PAD}
    model = load_model(reader)
    ffns = feed_forward_outputs(model, model.anatomy.reads.name)
    means = {places: _means(model, ffns, inputs, where) for places, where in chosen.items()}
    for layer, ffn in enumerate(ffns):
        for places, where in chosen.items():
            mean = means[places][layer]
            logs = [_answers_with(model, ffn, inputs.take(rows), where[rows], mean) for rows in _batches(len(inputs))]
            yield layer, places, np.concatenate(logs)


def _answers_with(model: Model, ffn: str, inputs: FactInputs, where: np.ndarray, mean: Tensor) -> np.ndarray:
    there = torch.from_numpy(where).to(model.device)[:, :, None]

    def replaced(_: int, output: Tensor) -> Tensor:
        return torch.where(there[:, : output.shape[1]], mean.to(output), output)  # it may lack trailing padding

    with module_outputs(model, [ffn], replaced):
        return answer_log_probabilities(model.module, inputs, batch=len(inputs))


@torch.no_grad()
def _means(model: Model, ffns: Sequence[str], inputs: FactInputs, where: np.ndarray) -> list[Tensor]:
    """Each block's mean output (width,) over the chosen tokens."""
    sums: list[Any] = [0.0] * len(ffns)
    for rows in _batches(len(inputs)):
        kept = torch.from_numpy(where[rows]).to(model.device)

        def add(layer: int, output: Tensor, kept: Tensor = kept) -> None:
            sums[layer] = sums[layer] + output[kept].double().sum(dim=0)

        with module_outputs(model, ffns, add):
            model.module.base_model(**inputs.take(rows).tensors(model.device))
    return [total / int(where.sum()) for total in sums]


def _batches(num: int) -> list[np.ndarray]:
    return [np.arange(start, min(start + BATCH, num)) for start in range(0, num, BATCH)]
