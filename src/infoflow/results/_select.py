"""Tables about the models of a run, and the choice of rows about particular models."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from infoflow.foundation import UserError

from ._schema import Column, TableSchema, estimate_columns
from ._subject import END, KEYS, UNTRAINED

# Tables about the models of a run: the data and cost of each, and whether it learned its task.
#
# They are declared in a layer below the measures, since measures, claims and figures all read them.

TASK_SCORES = TableSchema(
    name="task_scores",
    version=4,
    description="How well each model does the task it was trained for, on unseen sentences.",
    light=True,
    columns=(
        Column("split", "string", "", "part of the corpus: validation or test"),
        Column(
            "metric",
            "string",
            "",
            "loss (nats per predicted token; of several terms their weighted sum, and `loss of …` each), perplexity "
            "(exp of the loss), bleu (sacreBLEU, percent), rougeL (of what the decoder writes, 0 to 1); `… accuracy` "
            "(share of pairs judged correctly), `… AUC` (probability that a replaced token is distinguished from "
            "another, a true pair of words from a random one)",
        ),
        *estimate_columns(
            "nats, 1 or percent",
            "the score",
            "the same score without context: unigram frequencies of the training text (loss, perplexity), a copy of "
            "what the encoder reads (bleu, rougeL; for text without spaces also one sentence for all), the more "
            "frequent answer (accuracy), a half (AUC)",
        ),
        Column("signature", "string", "", "sacreBLEU's signature; empty for losses"),
    ),
)

GIVEN_SCORES = TableSchema(
    name="given_scores",
    description="How well each external model predicts the tokens of the sentences that it is measured on.",
    columns=(
        Column("metric", "string", "", "loss"),
        *estimate_columns(
            "nats per token",
            "cross-entropy of the model's predictions; NaN where it has no head that predicts tokens",
            "entropy of these tokens' own frequencies",
            "tokens",
        ),
    ),
)

TRAINING_RUNS = TableSchema(
    name="training_runs",
    description="What each model was trained on, and what that cost.",
    columns=(
        *KEYS,
        Column("updates", "int64", "updates", "optimiser steps"),
        Column("source_tokens", "int64", "tokens", "source tokens read, padding excluded"),
        Column("target_tokens", "int64", "tokens", "target tokens read by a decoder"),
        Column("supervised_tokens", "int64", "tokens", "tokens that the loss was computed on"),
        Column("seconds", "float64", "s", "wall time of training, interruptions excluded"),
        Column("cpu_seconds", "float64", "s", "CPU time of the whole training"),
        Column("parameters", "int64", "", "number of parameters"),
        Column("validation_loss", "float64", "nats/token", "loss on the validation part"),
    ),
)

LEARNING_CURVES = TableSchema(
    name="learning_curves",
    description="Training loss over time; each value is the mean over the updates since the previous one. "
    "Measured with dropout and the objective's own noise, so it lies above the loss of the finished model.",
    over_training=True,
    columns=(
        *KEYS,
        Column("step", "int64", "updates", "last optimiser step of the mean"),
        Column("source_tokens", "int64", "tokens", "source tokens read until then"),
        Column("value", "float64", "nats per token", "mean training loss"),
    ),
)

MATCH = TableSchema(
    name="match",
    description="What a comparison of models holds fixed, and what it does not.",
    made_by="infoflow study on the run's folder makes it, without training again",
    columns=(
        *KEYS,
        Column("parameters", "int64", "", "parameters of the model and of all that was trained with it or taught it"),
        Column("measured_parameters", "int64", "", "parameters of the part that is measured"),
        Column(
            "flops",
            "float64",
            "operations",
            "operations of the whole training, forward and backward: matrix products and attention, counted on the "
            "training's own batches (`count_training_flops`)",
        ),
        Column(
            "flops_error", "float64", "operations", "standard error of flops, which are counted on some of the updates"
        ),
        Column("updates", "int64", "updates", "optimiser steps"),
        Column("source_tokens", "int64", "tokens", "tokens read by the stack that reads the text"),
        Column("target_tokens", "int64", "tokens", "tokens read by a decoder that has an encoder"),
        Column("supervised_tokens", "int64", "tokens", "tokens that the loss was computed on"),
        Column(
            "drawn_weights",
            "int64",
            "",
            "random initial weights of the measured part; biases, norms and constant initial weights are left out",
        ),
        Column(
            "matched_weights",
            "int64",
            "",
            "of these, equal bit for bit to the initial weights of a masked LM with BERT's blocks and the same seed",
        ),
        Column("initialisation", "string", "", "whether initial weights match, and why"),
    ),
)

OBJECTIVE_EXAMPLES = TableSchema(
    name="objective_examples",
    description="One training example as each objective sees it: the inputs of its model and the targets of its loss, "
    "token by token.",
    made_by="infoflow study on the run's folder makes it, without training again",
    columns=(
        Column("part", "string", "", "inputs or targets"),
        Column(
            "line",
            "string",
            "",
            "what is read (tokens, segments, positions; of the encoder or the decoder), or a loss term",
        ),
        Column("place", "int64", "tokens", "position in the line, from 0"),
        Column(
            "token",
            "string",
            "",
            "the text of a token, after ## where it continues a word; · where the loss has no target",
        ),
    ),
)

RETRIEVAL_RUNS = TableSchema(
    name="retrieval_runs",
    description="How each reader was trained, what it cost, and whether it learned.",
    columns=(
        *KEYS,
        Column("updates", "int64", "updates", "optimiser steps"),
        Column("learning_rate", "float64", "", "peak learning rate of the reader"),
        Column("query_tokens", "int64", "tokens", "tokens of the queries, padding excluded"),
        Column("targets", "int64", "tokens", "masked tokens that the loss was computed on"),
        Column("seconds", "float64", "s", "wall time of training"),
        Column("cpu_seconds", "float64", "s", "CPU time of the whole training"),
        Column("parameters", "int64", "", "parameters of the reader and the retriever"),
        Column("training_p1", "float64", "share", "share of training queries answered correctly"),
        Column("chance", "float64", "share", "the same for a guess among the relation's objects"),
        Column("learned", "bool", "", "whether training_p1 exceeds chance by more than .05"),
    ),
)


# Selects the rows of a table about particular models, for findings, report and people alike.
#
# Rows are never averaged over models that differ in more than the request: if a selection leaves two models of one
# objective and seed, it is refused.

NAMES = tuple(column.name for column in KEYS)
_DECIDING = ("model", "variant", "architecture", "start", "update")
_EARLIER = {"start": "begin", "update": "step"}  # earlier names of columns that are keys now
_TELLING = ("architecture", "start", "variant", "update", "model")  # the error message names the first one that differs


class AmbiguousModels(UserError):
    """More than one model is left for an objective and a seed."""


def models(
    tables: Mapping[str, pd.DataFrame] | pd.DataFrame,
    objective: str | None = None,
    *,
    variant: str | None = "",
    architecture: str | None = None,
    start: str | None = "",
    update: int = END,
    side: str = "",
) -> pd.DataFrame:
    """The models in tables, one row each with the columns `KEYS`, in the order of the tables.

    Args:
        tables: One table or all of a run.
        objective: Only models of this objective; None: all.
        variant: Variant of the objective; None: all.
        architecture: None: the first one of the tables.
        start: Name of the model that they started from; None: any.
        update: -1: the end of their training; 0: before it.
        side: "_a" or "_b": the first or the second models of a table of pairs.

    Raises:
        AmbiguousModels: Two models share objective and seed.
    """
    frames = [tables] if isinstance(tables, pd.DataFrame) else list(tables.values())
    named = [_renamed(frame, side) for frame in frames if f"model{side}" in frame.columns]
    if not named:
        return pd.DataFrame(columns=list(NAMES))
    every = pd.concat([frame.drop_duplicates() for frame in named], ignore_index=True).drop_duplicates()
    family = first_architecture(tables) if architecture is None else architecture
    kept = every[_matches(every, "", objective, variant, family, start, update)].reset_index(drop=True)
    _require_one_each(kept, "")
    return kept


def select(
    frame: pd.DataFrame,
    objective: str | None = None,
    *,
    variant: str | None = "",
    architecture: str | None = None,
    start: str | None = "",
    update: int = END,
    trained: bool = True,
    side: str = "",
) -> pd.DataFrame:
    """The rows of a table about the selected models; arguments as for `models`.

    `trained=False` selects the models before their first update, as `update=0` does. In a table of pairs each side is
    selected by a separate call.

    Raises:
        AmbiguousModels: Rows of two models with one objective and seed are left.
    """
    at = update if trained else UNTRAINED
    family = first_architecture(frame) if architecture is None else architecture
    kept = frame[_matches(frame, side, objective, variant, family, start, at)]
    _require_one_each(kept, side)
    return kept


def first_architecture(tables: Mapping[str, pd.DataFrame] | pd.DataFrame) -> str:
    """The family that a study names first; "" if tables name none."""
    if isinstance(tables, pd.DataFrame):
        columns = [name for name in ("architecture", "architecture_a") if name in tables.columns]
        return str(tables[columns[0]].iloc[0]) if columns and len(tables) else ""
    names = [TRAINING_RUNS.name, "task_scores", *tables]  # the first two are in the plan's order
    return next((found for name in names if name in tables and (found := first_architecture(tables[name]))), "")


def with_keys(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of `KEYS` or `PAIR_KEYS` that earlier versions left out.

    They wrote "translation+token-dropout" as objective, trained every model with BERT's blocks from random weights, and
    measured each at the end of its training or before it. For pruned models they wrote method and scope as one text.
    """
    frame = _with_scope(frame)
    sides = [side for side in ("", "_a", "_b") if f"objective{side}" in frame and f"variant{side}" not in frame]
    if sides:
        frame = frame.rename(columns=_EARLIER)
    for side in sides:
        parts = [str(text).partition("+") for text in frame[f"objective{side}"]]
        trained = frame["trained"] if "trained" in frame else pd.Series(True, index=frame.index)
        added = {
            f"objective{side}": pd.array([part[0] for part in parts], dtype="string"),
            f"variant{side}": pd.array([part[2] for part in parts], dtype="string"),
            f"architecture{side}": "",
            f"start{side}": "",
            f"update{side}": np.where(trained, END, UNTRAINED),
        }
        frame = frame.assign(**added)
    return frame


def _with_scope(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `method` and `scope` to a pruning table.

    Earlier versions had "random-all" as a method, and "random" meant the encoder's self-attention.
    """
    if "scope" in frame or not {"method", "draw", "point"} <= set(frame):
        return frame
    pairs = [_method_and_scope(str(method)) for method in frame["method"]]
    columns = {
        name: pd.array([pair[at] for pair in pairs], dtype="string") for at, name in enumerate(("method", "scope"))
    }
    names = list(frame)
    names.insert(names.index("method") + 1, "scope")
    return frame.assign(**columns)[names]


def _method_and_scope(name: str) -> tuple[str, str]:
    if name == "unpruned":
        return name, ""
    ends = [scope for scope in ("all", "decoder-self", "decoder-cross") if name.endswith(f"-{scope}")]
    return (name.removesuffix(f"-{ends[0]}"), ends[0]) if ends else (name, "encoder-self")


def _renamed(frame: pd.DataFrame, side: str) -> pd.DataFrame:
    there = {f"{name}{side}": name for name in NAMES if f"{name}{side}" in frame.columns}
    columns = [*there, *(["trained"] if side and "trained" in frame.columns else [])]
    return frame[columns].rename(columns=there)


def _matches(
    frame: pd.DataFrame,
    side: str,
    objective: str | None,
    variant: str | None,
    architecture: str,
    start: str | None,
    update: int,
) -> np.ndarray:
    wanted = {"objective": objective, "variant": variant, "architecture": architecture, "start": start}
    keep = np.ones(len(frame), dtype=bool)
    for name, value in wanted.items():
        if value is not None and f"{name}{side}" in frame.columns:
            keep &= np.asarray(frame[f"{name}{side}"] == value, dtype=bool)
    if f"update{side}" in frame.columns:
        keep &= np.asarray(frame[f"update{side}"] == update, dtype=bool)
    elif "trained" in frame.columns:
        keep &= np.asarray(frame["trained"] == (update != UNTRAINED), dtype=bool)
    return keep


def _require_one_each(frame: pd.DataFrame, side: str) -> None:
    """Refuse two models of one corpus, objective, seed and, if all variants were requested, variant."""
    own = ["objective", "variant", "seed", "corpus"]
    shared = [name for name in (f"{each}{side}" if each != "corpus" else each for each in own) if name in frame]
    other = "_b" if side == "_a" else "_a"
    shared += [f"{name}{other}" for name in NAMES if side and f"{name}{other}" in frame]
    deciding = [f"{name}{side}" for name in _DECIDING if f"{name}{side}" in frame]
    if not deciding or "objective" + side not in frame:
        return
    distinct = frame[list(dict.fromkeys([*shared, *deciding]))].drop_duplicates()
    twice = distinct[distinct.duplicated(shared, keep=False)]
    if twice.empty:
        return
    same = twice[(twice[shared] == twice[shared].iloc[0]).all(axis=1)]
    names = [name for name in (f"{each}{side}" for each in _TELLING) if name in same]
    telling = next(name for name in names if len(set(same[name])) > 1)
    values = ", ".join(map(str, dict.fromkeys(same[telling])))
    first = same.iloc[0]
    raise AmbiguousModels(
        f"One model for each objective and seed must be chosen. Of {first['objective' + side]}, seed "
        f"{first['seed' + side] if 'seed' + side in same else '?'}, there are several: {telling} {values}. "
        f"Choose one by its {telling}."
    )
