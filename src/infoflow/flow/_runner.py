"""`measure`: any number of measures in one pass over a corpus."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import PreTrainedModel

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, current_display, scratch_folder
from infoflow.models import Model
from infoflow.results import Table

from ._accepted import Measures, accepted_corpus, accepted_measures, accepted_model
from ._distributed import exchange, processes
from ._failures import Failure, Failures
from ._measure import AbstractMeasure, Intervention, Measure, NothingToRead, PairMeasure, SampleMeasure, check_measures
from ._options import PassOptions
from ._pass import Pass, SampleKey
from ._sample import SampleRequest, TokenSample

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measured:
    """The result of one pass: the tables, and the samples for comparisons of models."""

    tables: Tables
    samples: dict[SampleKey, TokenSample]
    failures: tuple[Failure, ...] = ()
    """Measures that failed; their tables are left out."""


def measure(
    model: Model | PreTrainedModel | str | Path,
    corpus: Any,
    measures: Measures,
    options: PassOptions | None = None,
    ranks_from: Corpus | None = None,
) -> Tables:
    """Run `measures` on `model` reading `corpus`; the model runs once per batch for any number of measures.

    Under `torchrun` the batches are shared among the processes, and every process returns the complete result.

    Args:
        model: From `load_model`, with a tokenizer; or its argument, such as a name or folder.
        corpus: From `load_corpus` or one of `Corpus.from_…`; or its argument, such as a path or a list.
        measures: Streaming, sample or pair measures, or a single one; pair measures wait for `compare`. The objects
            stay unchanged.
        options: Seed, batch size, maximum length, byte budget of the token sample.
        ranks_from: The corpus for token frequencies: the training corpus, if known; default: `corpus`.

    Returns:
        A table per measure, by the table's name; rows of measures that share a table are concatenated. Among several
        measures, a failing one is left out with a warning.

    Raises:
        UserError: No measure applies to the model, the corpus is empty, or states are not finite.
    """
    measures = accepted_measures(measures)
    model, corpus = accepted_model(model), accepted_corpus(corpus)
    with scratch_folder() as folder:
        return known(collect(model, corpus, measures, folder, options, ranks_from).tables, measures)


def known(tables: Tables, measures: Sequence[AbstractMeasure]) -> Tables:
    """The tables with their schemas, shown without replicates."""
    schemas = {each.name: each.table for each in measures}
    return {name: Table.of(frame, schemas.get(name)) for name, frame in tables.items()}


def collect(
    model: Model,
    corpus: Corpus,
    measures: Sequence[AbstractMeasure],
    folder: Path,
    options: PassOptions | None = None,
    ranks_from: Corpus | None = None,
    keep_going: bool | None = None,
) -> Measured:
    """`measure`, with the token samples kept in `folder`.

    `keep_going` says whether a failing measure is left out with a warning or its error raised; default: left out if
    there are several.
    """
    check_measures(measures)
    failures = Failures(model.name, len(measures) > 1 if keep_going is None else keep_going)
    chosen = applicable(model, measures, failures)
    rank, world = processes()
    # Each process fills its own sample file, even on a shared disk.
    own = folder if world == 1 else folder / f"process-{rank}"
    run = Pass(model, corpus, chosen, options or PassOptions(), own, ranks_from, failures)
    run.run(rank, world)
    if world > 1:
        failures.add(exchange(failures))
        run.load(exchange(run.state_dict()))
    return finish(run, chosen, failures, (rank, world))


def applicable(model: Model, measures: Sequence[AbstractMeasure], failures: Failures) -> list[AbstractMeasure]:
    """Fresh copies of the measures that apply to `model`; the others are skipped with a note.

    Raises:
        UserError: No measure is left.
    """
    reasons: dict[AbstractMeasure, str | None] = {}
    for measure in measures:
        with failures.of(measure):
            reasons[measure] = measure.why_not(model)
    lacking = model.anatomy.lacks()
    if lacking and (left := sorted({measure.name for measure, reason in reasons.items() if reason == lacking})):
        current_display().note(f"Of {model.name} {len(left)} tables are left out, for {lacking}: {', '.join(left)}.")
    for refused, reason in reasons.items():
        if reason is not None and reason != lacking:
            which = refused.name + (", as in training," if refused.regime == "training" else "")
            current_display().note(f"{which} of {model.name} is skipped: {reason}")
    kept = [copy.deepcopy(measure) for measure, reason in reasons.items() if reason is None]
    if not kept:
        why = [reason for reason in reasons.values() if reason] + [failure.reason for failure in failures.listed()]
        raise UserError(f"No measure applies to {model.name}: {'; '.join(why) or 'none given'}.")
    return kept


def finish(
    run: Pass, measures: Sequence[AbstractMeasure], failures: Failures, share: tuple[int, int] = (0, 1)
) -> Measured:
    """Turn the collected state into tables; each of several processes computes a share, and all get the whole."""
    samples = run.samples()

    @cache  # one object for equal requests, so that measures can share what they computed from it
    def serve(key: SampleKey, request: SampleRequest) -> TokenSample:
        return samples[key].serve(request)

    def parts_of(each: AbstractMeasure) -> list[pd.DataFrame]:
        if isinstance(each, Measure):
            return [each.result()]
        if isinstance(each, SampleMeasure):
            return [each.compute(serve(key, each.request)) for key in samples if key[1] == each.regime]
        if isinstance(each, Intervention):
            try:
                return [each.run(run.reader, run.options)]
            except NothingToRead as reason:
                if not failures.keep_going:
                    raise
                current_display().note(f"{each.name} of {run.model.name} is skipped: {reason}")
                return [pd.DataFrame(columns=each.table.column_names)]
        assert isinstance(each, PairMeasure)
        return []

    rank, world = share
    computed: dict[int, list[pd.DataFrame]] = {}
    with current_display().progress(f"Computing {run.model.name}", len(measures), "measures") as progress:
        for index, each in enumerate(measures):
            if index % world == rank and each not in failures:
                with failures.of(each):
                    computed[index] = [each.table.conform(part) for part in parts_of(each)]
            progress.advance(1)
    if world > 1:
        failures.add(exchange(failures))
        computed = {index: parts for one in exchange(computed) for index, parts in one.items()}
    return Measured(tables=_tables(measures, computed, failures), samples=samples, failures=failures.listed())


def _tables(measures: Sequence[AbstractMeasure], computed: dict[int, list[pd.DataFrame]], failures: Failures) -> Tables:
    """Tables by name; a table is left out if any measure that contributes to it failed."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for index, each in enumerate(measures):
        if each not in failures:
            frames.setdefault(each.name, []).extend(computed[index])
    return {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items() if parts}
