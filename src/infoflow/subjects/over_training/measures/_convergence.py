"""How close layers and predictions are to their final form, compared with noise or with another seed."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from infoflow.corpus import Corpus
from infoflow.flow import Intervention, PassOptions, Reader, check_finite, forward
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, hash64, stream
from infoflow.models import Model, rerun_others, tap
from infoflow.representations import ReferenceLayer
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._token_losses import SENTENCES, checked_sentences, scored_tokens

FINAL = "final"
_METRICS = ("cka_debiased", "procrustes")
_NAMES = {"cka_debiased": "cka"}
_TRIMMED, _OUTLIERS = "cka without outliers", 3
_ROWS_PER_DIMENSION = 20  # tokens per dimension; with fewer, PWCCA is left out
DISPLACEMENT = "displacement"

CONVERGENCE = TableSchema(
    name="convergence",
    description="How similar each layer's states, and what each block adds to the reference's states, are to those of "
    "a reference model on the same tokens. A lower layer may be close to its final state only because it has fewer "
    "layers below it: compare states with blocks, and both with `null`.",
    light=True,
    over_training=True,
    made_by="a plan with a schedule in [checkpoints] makes it",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state (0 = embeddings), or block (from 0)"),
        Column("kind", "string", "", "state; or block: what a block adds to the reference's states"),
        Column("reference", "string", "", "final, previous, initial or other-seed"),
        Column(
            "similarity",
            "string",
            "",
            "cka (debiased), cka without outliers (without the reference's 3 dimensions of most variance), "
            "pwcca, procrustes (cosine of the angle); displacement is a distance: |X - R| / |R - mean|, not aligned",
        ),
        *estimate_columns("1", "similarity, or displacement", "the same with the tokens of one model shuffled"),
        Column(
            "null",
            "float64",
            "1",
            "the same for the final weights with noise that is, in each tensor, as large as the remaining "
            "distance: mean of 3 draws; NaN for other references",
        ),
    ),
)

References = Callable[[], Mapping[str, Model]]  # loads the models to compare with, by name


class LayerConvergence(Intervention):
    r"""Similarity of a checkpoint's layers to those of other checkpoints of its training, or of another seed.

    Kind *state* compares the states of both models on the same tokens; kind *block*, with the final model as reference,
    compares \(f^{(t)}_l(x) - x\) with \(f^{(T)}_l(x) - x\) on the final model's states x: what one block has learned,
    independent of the layers below. The null is the final weights plus a random direction in each tensor of length
    \(\lVert \theta_t - \theta_T \rVert\). PWCCA is left out below 20 tokens per dimension.

    CKA and PWCCA are invariant to rotation. Displacement is not: it is meaningful only within one run, whose
    checkpoints share a basis.

    Args:
        references: Loads the models to compare with; blocks and null need `final` among them.
        key: Name or hash that identifies the references in the keys of results.
        occurrences: Approximate number of tokens, from whole sentences in the order of their hashes.
        draws: Number of draws of the noise.

    Source: [@raghu2017], [@kornblith2019]; nulls are ours.
    """

    table: ClassVar[TableSchema] = CONVERGENCE

    def __init__(self, references: References, key: Sequence[str], occurrences: int = 10_000, draws: int = 3) -> None:
        self._references = references
        self.key, self.occurrences, self.draws = tuple(key), occurrences, draws

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        model, references = reader.model, self._references()
        batches = _batches(reader, self.occurrences, options.tokens_per_batch)
        own = _read(model, reader, batches)
        rows: list[dict[str, Any]] = []
        for name, reference in references.items():
            noisy = [_with_noise(reference, model, draw) for draw in range(self.draws)] if name == FINAL else []
            theirs = _read(reference, reader, batches, [model, *noisy] if name == FINAL else [])
            nulls = [_read(each, reader, batches) for each in noisy]
            rows += _rows(name, "state", own.states, theirs.states, [each.states for each in nulls], own.blocks)
            if name == FINAL:
                at, *noise = theirs.updates_of_others
                rows += _rows(name, "block", at, theirs.updates, noise, own.blocks)
        return pd.DataFrame(rows, columns=[c for c in CONVERGENCE.column_names if c != "stack"]).assign(
            stack=reader.source_stack
        )


Layers = list[Float[np.ndarray, "_ D"]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Read:
    states: Layers
    blocks: Int[np.ndarray, " n"]  # bootstrap block of each token
    updates: Layers  # what its blocks add to its own states
    updates_of_others: list[Layers]  # what other models' blocks add to the same states


def _batches(reader: Reader, occurrences: int, tokens_per_batch: int) -> list[np.ndarray]:
    """Batches of the first sentences, by a hash of their text, with `occurrences` tokens or a few more."""
    chosen, tokens = set[int](), 0
    for row in reader.rows.tolist():
        if tokens >= occurrences:
            break
        chosen.add(row)
        tokens += reader.num_tokens(np.array([row]))
    kept = ([row for row in batch.tolist() if row in chosen] for batch in reader.batches(tokens_per_batch))
    return [np.array(batch) for batch in kept if batch]


def _read(model: Model, reader: Reader, batches: Sequence[np.ndarray], others: Sequence[Model] = ()) -> _Read:
    """Run `model` once; with `others`, also return what its blocks and those of the others add to its states."""
    states, updates = list[Layers](), list[Layers]()
    theirs: list[list[Layers]] = [[] for _ in others]
    blocks: list[np.ndarray] = []
    for rows in batches:
        batch = reader.padded(rows)
        source = {reader.source_stack: batch.streams[reader.source_stack]}  # without the input from the other stack
        batch = replace(batch, streams=source).to(model.device)
        valid = batch.streams[reader.source_stack].valid
        with torch.inference_mode(), tap(model, hidden=True) as seen:
            if others:
                reruns = rerun_others(model, others, reader.source_stack, lambda batch=batch: forward(model, batch))
                updates.append([_chosen(block.own, valid) for block in reruns])
                for index in range(len(others)):
                    theirs[index].append([_chosen(block.others[index], valid) for block in reruns])
            else:
                forward(model, batch)
            check_finite(model, seen.hidden, batch)
            states.append([_chosen(state, valid) for state in seen.hidden[reader.source_stack]])
        blocks.append(np.repeat(block_of(batch.sentence_ids), valid.sum(1).cpu().numpy()))
    return _Read(
        states=_joined(states),
        blocks=np.concatenate(blocks),
        updates=_joined(updates),
        updates_of_others=[_joined(each) for each in theirs],
    )


def _chosen(states: torch.Tensor, valid: torch.Tensor) -> np.ndarray:
    return states[valid].float().cpu().numpy()


def _joined(batches: list[Layers]) -> Layers:
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


def _with_noise(final: Model, now: Model, draw: int) -> Model:
    """The final model, with each tensor moved in a random direction by its distance from `now`."""
    module = copy.deepcopy(final.module)
    theirs = dict(now.module.named_parameters())
    generator = torch.Generator().manual_seed(hash64("convergence-null", draw) % 2**63)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in theirs or theirs[name].shape != parameter.shape:
                raise UserError(
                    f"{now.name} and {final.name} have different tensors ({name}). Compare checkpoints of one training."
                )
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            length = torch.linalg.vector_norm(theirs[name].to(parameter) - parameter)
            parameter += noise * (length / torch.linalg.vector_norm(noise).clamp(min=1e-30))
    return dataclasses.replace(final, module=module)


def _rows(
    reference: str, kind: str, own: Layers, theirs: Layers, nulls: Sequence[Layers], blocks: np.ndarray
) -> Iterator[dict[str, Any]]:
    for layer, (x, r) in enumerate(zip(own, theirs, strict=True)):
        of_null = [each[layer] for each in nulls]
        for name, columns, null in _similarities(x, r, of_null, blocks):
            keys = {"layer": layer, "kind": kind, "reference": reference, "similarity": name}
            yield {**keys, **columns, "null": null}


def _similarities(
    x: Float[np.ndarray, "n D"], r: Float[np.ndarray, "n D"], nulls: Sequence[np.ndarray], blocks: np.ndarray
) -> Iterator[tuple[str, dict[str, Any], float]]:
    enough = len(x) >= _ROWS_PER_DIMENSION * x.shape[1]
    metrics = (*_METRICS, "pwcca") if enough else _METRICS
    whole = ReferenceLayer(r, blocks)
    found, of_nulls = whole.similarities(x, metrics), [whole.values(each, metrics) for each in nulls]
    for metric in metrics:
        yield _NAMES.get(metric, metric), found[metric], _mean([each[metric] for each in of_nulls])
    kept = np.sort(np.argsort(-r.var(axis=0, dtype=np.float64), kind="stable")[_OUTLIERS:])
    if len(kept):
        trimmed = ReferenceLayer(r[:, kept], blocks)
        columns = trimmed.similarities(x[:, kept], ["cka_debiased"])["cka_debiased"]
        null = [trimmed.values(each[:, kept], ["cka_debiased"])["cka_debiased"] for each in nulls]
        yield _TRIMMED, columns, _mean(null)
    yield DISPLACEMENT, displacement(x, r, blocks), _mean([_root(each, r) for each in nulls])


def displacement(
    x: Float[np.ndarray, "n D"], r: Float[np.ndarray, "n D"], blocks: Int[np.ndarray, " n"]
) -> dict[str, Any]:
    r"""\(\lVert X - R \rVert_F / \lVert R - \bar R \rVert_F\) as columns of an estimate.

    The baseline is the displacement of R with shuffled tokens, √2 in expectation.
    """
    moved, spread = _squares(x, r)
    shuffled = r[stream("displacement-baseline").permutation(len(r))]
    sums = [np.bincount(blocks, weights=each, minlength=NUM_BLOCKS) for each in (moved, spread)]
    squared = ratio_estimate(sums[0], sums[1], float("nan"), scale="positive")
    roots = {name: float(np.sqrt(max(squared[name], 0))) for name in ("value", "low", "high")}
    replicates = np.sqrt(np.maximum(squared["replicates"], 0)).round(5).tolist()
    return {**squared, **roots, "baseline": _root(shuffled, r), "count": len(x), "replicates": replicates}


def _root(x: Float[np.ndarray, "n D"], r: Float[np.ndarray, "n D"]) -> float:
    """The displacement alone; NaN if the reference does not vary."""
    moved, spread = (each.sum() for each in _squares(x, r))
    return float(np.sqrt(moved / spread)) if spread else float("nan")


def _squares(
    x: Float[np.ndarray, "n D"], r: Float[np.ndarray, "n D"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """|x - r|² and |r - mean|² of each token."""
    reference = r.astype(np.float64)
    return ((x - reference) ** 2).sum(axis=1), ((reference - reference.mean(axis=0)) ** 2).sum(axis=1)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


# The divergence between a checkpoint's predictions and those of the last checkpoint.

_FLOOR = 1e-10
_ALL = -1

PREDICTION_DIVERGENCE = TableSchema(
    name="prediction_divergence",
    description="Divergence of a checkpoint's predictions from those of the last checkpoint on the same tokens.",
    light=True,
    columns=(
        Column(
            "position", "int64", "tokens", "position of the predicted token, from 1; -1: mean over all predicted tokens"
        ),
        *estimate_columns(
            "nats per token",
            "KL(last checkpoint || this one), mean over predicted tokens",
            "KL(last checkpoint || every token with the same probability)",
            "predicted tokens",
        ),
    ),
)


def prediction_divergence(
    model: Model,
    final: Model,
    corpus: Corpus,
    sentences: int | None = SENTENCES,
    options: PassOptions | None = None,
    by_position: bool = False,
) -> pd.DataFrame:
    r"""The table `PREDICTION_DIVERGENCE`: \(\mathrm{KL}(p_T \,\|\, p_t)\), with a floor of \(10^{-10}\) under \(p_t\).

    Both models read the same input: the preceding tokens of the text (causal LM, decoder), or a text with the same
    hidden tokens (masked LM).

    Source: [@voita2021].

    Args:
        model: The checkpoint, t.
        final: The last one, T.
        corpus: Text to predict.
        sentences: At most this many, chosen by a hash of their text.
        options: Options of the pass.
        by_position: Add a row for each position.

    Raises:
        UserError: The models have no loss, or predict different tokens.
    """
    chosen, number = options or PassOptions(), checked_sentences(sentences)
    both = (scored_tokens(_reader(one, corpus, chosen), chosen, number, back=0) for one in (final, model))
    divergences, uniforms, positions, blocks = [], [], [], []
    for last, now in zip(*both, strict=True):
        if last.log_chances.shape != now.log_chances.shape or not np.array_equal(last.labels, now.labels):
            raise UserError(
                f"{model.name} and {final.name} must predict the same tokens: {now.log_chances.shape[1]} and "
                f"{last.log_chances.shape[1]} types. Give checkpoints of one training."
            )
        chances = last.log_chances.double().exp()
        own = (chances * last.log_chances.double().clamp(min=np.log(_FLOOR))).sum(dim=1)
        floored = torch.clamp(now.log_chances.double(), min=np.log(_FLOOR))
        divergences.append((own - (chances * floored).sum(dim=1)).cpu().numpy())
        uniforms.append((own + np.log(chances.shape[1])).cpu().numpy())
        positions.append(last.positions)
        blocks.append(last.blocks)
    if not divergences:
        raise UserError(f"No sentence of {corpus.name} has a token to predict.")
    of_all = [np.concatenate(each) for each in (divergences, uniforms, positions, blocks)]
    places = [_ALL, *(np.unique(of_all[2]).tolist() if by_position else [])]
    rows = [{"position": place, **_kl_row(place, *of_all)} for place in places]
    return PREDICTION_DIVERGENCE.conform(pd.DataFrame(rows, columns=PREDICTION_DIVERGENCE.column_names))


def _reader(model: Model, corpus: Corpus, options: PassOptions) -> Reader:
    return Reader(
        model,
        corpus,
        max_length=options.max_length,
        seed=options.seed,
        decoder=len(model.anatomy.stacks) > 1,
        corruption=options.corruption,
    )


def _kl_row(place: int, values: np.ndarray, uniform: np.ndarray, positions: np.ndarray, blocks: np.ndarray) -> dict:
    at = np.ones(len(values), dtype=bool) if place == _ALL else positions == place
    sums, counts = (np.bincount(blocks[at], weights, NUM_BLOCKS) for weights in (values[at], np.ones(at.sum())))
    return ratio_estimate(sums, counts, float(uniform[at].mean()), scale="positive")


# The divergence between the predictions of two seeds at the same update.

SEED_DIVERGENCE = replace(
    PREDICTION_DIVERGENCE,
    name="seed_divergence",
    description="Divergence of a checkpoint's predictions from those of another seed at the same update, on the same "
    "tokens.",
    light=False,
    made_by="a plan with two or more seeds and seed_divergence in light or heavy in its [checkpoints] makes it",
    columns=(
        PREDICTION_DIVERGENCE.columns[0],
        *estimate_columns(
            "nats per token",
            "KL(other seed || this one), mean over predicted tokens",
            "KL(other seed || every token with the same probability)",
            "predicted tokens",
        ),
    ),
)
