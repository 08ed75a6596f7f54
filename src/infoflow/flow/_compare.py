"""`compare`: two or more models on the same words."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from transformers import PreTrainedModel

from infoflow.corpus import NOT_A_WORD, tokenizer_digest
from infoflow.foundation import UserError, current_display, scratch_folder
from infoflow.models import Model
from infoflow.results import Column

from ._accepted import Measures, accepted_corpus, accepted_measures, accepted_models
from ._activations import Regime
from ._measure import PairMeasure
from ._options import PassOptions
from ._pass import SampleKey
from ._runner import Measured, Tables, collect, known
from ._sample import TokenSample

MODEL = Column(name="model", dtype="string", unit="", description="name of the model")
"""The key column of tables of one model."""


def compare(
    models: Sequence[Model | PreTrainedModel | str | Path],
    corpus: Any,
    measures: Measures,
    options: PassOptions | None = None,
) -> Tables:
    """Measure several models on one corpus, and pairs of them on the same words.

    Each model reads the corpus with its own tokenizer. Pair measures compare the stacks that read the text on words
    present in both samples; words that only one model sampled are dropped and counted. Models with the same tokenizer
    are compared token by token, others word by word, see `PairMeasure.words`.

    Args:
        models: Two or more, each as for `measure`.
        corpus: As for `measure`.
        measures: Any measures, or a single one.
        options: As for `measure`.

    Returns:
        The tables of `measure` with a column `model` in front, and those of pair measures with `model_a`, `model_b`.
    """
    models = accepted_models(models)
    measures = accepted_measures(measures)
    if len(models) < 2:
        raise UserError(f"compare needs at least two models. Got {len(models)}. For one model use `measure`.")
    if len({model.name for model in models}) < len(models):
        raise UserError(
            f"Models that are compared need different names. Got {', '.join(model.name for model in models)}. "
            "Rename one: dataclasses.replace(model, name=...)."
        )
    corpus = accepted_corpus(corpus)
    pairs = [each for each in measures if isinstance(each, PairMeasure)]
    options = options or PassOptions()
    if len({tokenizer_digest(model.require_tokenizer()) for model in models}) > 1:
        options = replace(options, white_space_words=True)
    with scratch_folder() as folder:
        measured = [
            collect(model, corpus, measures, folder / str(index), options) for index, model in enumerate(models)
        ]
        tables = _stack_tables(models, measured)
        for (i, a), (j, b) in combinations(enumerate(models), 2):
            named = {"model_a": a.name, "model_b": b.name}
            for name, frame in compare_samples(pairs, measured[i].samples, measured[j].samples).items():
                tables.setdefault(name, []).append(frame.assign(**named)[[*named, *frame.columns]])
    return known({name: pd.concat(frames, ignore_index=True) for name, frames in tables.items()}, measures)


def _stack_tables(models: Sequence[Model], measured: Sequence[Measured]) -> dict[str, list[pd.DataFrame]]:
    tables: dict[str, list[pd.DataFrame]] = {}
    for model, result in zip(models, measured, strict=True):
        for name, frame in result.tables.items():
            tables.setdefault(name, []).append(frame.assign(model=model.name)[["model", *frame.columns]])
    return tables


def compare_samples(
    measures: Sequence[PairMeasure], first: dict[SampleKey, TokenSample], second: dict[SampleKey, TokenSample]
) -> Tables:
    """Pair measures on two models' samples of the text."""
    tables: Tables = {}
    for each in measures:
        a, b = match_words(text_sample(first, each.regime), text_sample(second, each.regime), each.words)
        a, b = a.serve(each.request), b.serve(each.request)
        tables[each.name] = each.table.conform(each.compute(a, b))
    return tables


def text_sample(samples: dict[SampleKey, TokenSample], regime: Regime = "clean") -> TokenSample:
    """The sample of the stack that reads the corpus's text: the encoder if there is one."""
    return samples["encoder" if ("encoder", regime) in samples else "decoder", regime]


def match_words(first: TokenSample, second: TokenSample, words: str = "token") -> tuple[TokenSample, TokenSample]:
    """Both samples restricted to their common occurrences, in the first one's order.

    Args:
        first: The first model's sample.
        second: The second model's sample.
        words: Unit of matching, see `PairMeasure.words`.

    Raises:
        UserError: Word matching meets a slow tokenizer, or no sampled word is shared.
    """
    same_tokens = words == "token" and first.facts.tokenizer == second.facts.tokenizer
    if not same_tokens:
        first, second = (_in_words(sample, "last" if words == "token" else words) for sample in (first, second))
    rows_a, rows_b = (_places(sample, "position" if same_tokens else "word") for sample in (first, second))
    shared = [(i, rows_b[key]) for key, i in rows_a.items() if key in rows_b]
    if not shared:
        raise UserError(
            f"{first.facts.model} and {second.facts.model} share no sampled word. "
            "Compare them on the same corpus, with a larger sample."
        )
    for rows, model in ((rows_a, first.facts.model), (rows_b, second.facts.model)):
        if len(rows) > len(shared):
            current_display().note(
                f"{len(rows) - len(shared):,} of {len(rows):,} sampled words of {model} are dropped."
            )
    index_a, index_b = np.array(shared).T
    a, b = first.take(index_a), second.take(index_b)
    assert not same_tokens or np.array_equal(a.occurrences.token, b.occurrences.token)
    return a, b


def _in_words(sample: TokenSample, merge: str) -> TokenSample:
    if len(sample) and (sample.occurrences.word == NOT_A_WORD).all():
        raise UserError(
            f"The tokenizer of {sample.facts.model} is slow and knows no words, so its tokens cannot be matched to "
            "another tokenizer's. Load the model with a fast tokenizer."
        )
    return sample.words(merge)


def _places(sample: TokenSample, column: Literal["position", "word"]) -> dict[tuple[int, int], int]:
    """Row of each (sentence, position) or (sentence, word)."""
    at = sample.occurrences
    keys = zip(at.sentence.tolist(), getattr(at, column).tolist(), strict=True)
    return {key: i for i, key in enumerate(keys)}
