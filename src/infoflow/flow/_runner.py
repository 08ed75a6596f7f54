"""`measure`: any number of measures in one pass; `compare`: two or more models on the same words; and their inputs."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import NOT_A_WORD, Corpus, load_corpus, tokenizer_digest
from infoflow.foundation import UserError, as_written, current_display, scratch_folder
from infoflow.models import Model, load_model
from infoflow.results import Column, Table

from ._distributed import exchange, processes
from ._forward import TOO_LONG, left_out_texts, num_heads, read_whole
from ._measure import (
    AbstractMeasure,
    Failure,
    Failures,
    Intervention,
    Measure,
    NothingToRead,
    PairMeasure,
    PassOptions,
    SampleMeasure,
    check_measures,
)
from ._pass import Pass, SampleKey
from ._reader import Reader
from ._sample import Regime, SampleRequest, TokenSample

Measures = Sequence[AbstractMeasure] | AbstractMeasure


def accepted_model(model: Any) -> Model:
    """The model itself if it is loaded; a name, a folder or a transformers model goes through `load_model`."""
    if isinstance(model, Model):
        return model
    if isinstance(model, str | Path) or hasattr(model, "save_pretrained"):
        return load_model(model)
    raise UserError(
        f"A model is a name, a folder, or what infoflow.load_model returns. Got {as_written(model)}. Name one."
    )


def accepted_models(models: Any) -> list[Model]:
    """`accepted_model` for each of several models."""
    if not isinstance(models, list | tuple):
        raise UserError(
            "compare takes a list of models first: compare([first, second], corpus, measures). "
            f"Got {'one model' if isinstance(models, Model) else as_written(models)}. Put the models into a list."
        )
    return [accepted_model(model) for model in models]


def accepted_corpus(corpus: Any) -> Corpus:
    """The corpus itself if it is one; a name, path, list, frame or dataset goes through `load_corpus`."""
    if isinstance(corpus, Model):
        raise UserError("The corpus comes after the model, or the list of models. Got a second model in its place.")
    return corpus if isinstance(corpus, Corpus) else load_corpus(corpus)


def accepted_measures(measures: Any) -> Sequence[AbstractMeasure]:
    """A list of measures; a single measure becomes a list."""
    measures = [measures] if isinstance(measures, AbstractMeasure) else measures
    check_measures(measures)
    return measures


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
        measures: Streaming, sample or pair measures, or a single one; only `compare` computes pair measures. The
            objects stay unchanged.
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
    """The tables with their schemas attached; they are displayed without replicates."""
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

    `keep_going` says whether a failing measure is left out with a warning or its error is raised; default: left out if
    there are several measures.
    """
    check_measures(measures)
    failures = Failures(model.name, len(measures) > 1 if keep_going is None else keep_going)
    chosen = applicable(model, measures, failures)
    rank, world = processes()
    # Each process fills its own sample file, even on a shared disk.
    own = folder if world == 1 else folder / f"process-{rank}"
    run = Pass(model, corpus, chosen, options or PassOptions(), own, ranks_from, failures)
    with current_display().progress(f"Measuring {model.name}", 2) as progress:
        run.run(rank, world)
        if world > 1:
            failures.add(exchange(failures))
            run.load(exchange(run.state_dict()))
        progress.advance(1)
        return finish(run, chosen, failures, (rank, world))


def applicable(model: Model, measures: Sequence[AbstractMeasure], failures: Failures) -> list[AbstractMeasure]:
    """Fresh copies of the measures that apply to `model`; the others are skipped with a note."""
    reasons: dict[AbstractMeasure, str | None] = {}
    for measure in measures:
        with failures.of(measure):
            reasons[measure] = measure.why_not(model)
    lacking = model.anatomy.lacks()
    if lacking and (left := sorted({measure.name for measure, reason in reasons.items() if reason == lacking})):
        tables = ", ".join(left)
        current_display().note(f"{len(left)} tables of {model.name} are left out, because {lacking}: {tables}.")
    refused: dict[str, list[str]] = {}
    for measure, reason in reasons.items():
        if reason is not None and reason != lacking:
            name = measure.name + (" on corrupted text" if measure.regime == "training" else "")
            refused.setdefault(reason, []).append(name)
    for reason, names in refused.items():
        are = "are" if len(names) > 1 else "is"
        current_display().note(f"{', '.join(names)} of {model.name} {are} skipped: {reason.rstrip('.')}.")
    kept = [copy.deepcopy(measure) for measure, reason in reasons.items() if reason is None]
    if not kept:
        why = [reason for reason in reasons.values() if reason] + [failure.reason for failure in failures.listed()]
        raise UserError(f"No measure applies to {model.name}: {'; '.join(dict.fromkeys(why)) or 'none given'}.")
    return kept


def _readable(each: Intervention, run: Pass) -> Reader:
    """The pass's reader, without the texts that are too long for this measure."""
    rows = run.reader.rows
    lengths, heads = run.reader.lengths(rows), num_heads(run.model)
    if not each.whole_attention or read_whole(heads, int(lengths.max(initial=0)), run.options):
        return run.reader
    fits = np.array([read_whole(heads, length, run.options) for length in lengths.tolist()])
    least = int(lengths[~fits].min())
    if not fits.any():
        raise NothingToRead(f"all texts have {least:,} or more tokens, {TOO_LONG}")
    current_display().warn(left_out_texts(each.name, run.model, int((~fits).sum()), least))
    return run.reader.of_rows(rows[fits])


def finish(
    run: Pass, measures: Sequence[AbstractMeasure], failures: Failures, share: tuple[int, int] = (0, 1)
) -> Measured:
    """Turn the collected state into tables; under `torchrun` each process computes a share, and all get all tables."""
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
                return [each.run(_readable(each, run), run.options)]
            except NothingToRead as reason:
                if not failures.keep_going:
                    raise
                current_display().note(f"{each.name} of {run.model.name} is skipped: {reason}")
                return [pd.DataFrame(columns=each.table.column_names)]
        assert isinstance(each, PairMeasure)
        return []

    rank, world = share
    computed: dict[int, list[pd.DataFrame]] = {}
    with current_display().progress("measures", len(measures)) as progress:
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


MODEL = Column("model", "string", "", "name of the model")
"""The key column of tables of one model."""


def compare(
    models: Sequence[Model | PreTrainedModel | str | Path],
    corpus: Any,
    measures: Measures,
    options: PassOptions | None = None,
) -> Tables:
    """Measure several models on one corpus, and pairs of them on the same words.

    Each model reads the corpus with its own tokenizer. On words present in both samples, pair measures compare the
    stacks that read the text; words that only one model sampled are dropped and counted. Models with the same tokenizer
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
    with scratch_folder() as folder, current_display().progress("Comparing models", len(models) + 1) as progress:
        measured: list[Measured] = []
        tables: dict[str, list[pd.DataFrame]] = {}
        for index, model in enumerate(models):
            measured.append(collect(model, corpus, measures, folder / str(index), options))
            for name, frame in measured[-1].tables.items():
                tables.setdefault(name, []).append(frame.assign(model=model.name)[["model", *frame.columns]])
            progress.advance(1)
        for (i, a), (j, b) in combinations(enumerate(models), 2):
            named = {"model_a": a.name, "model_b": b.name}
            for name, frame in compare_samples(pairs, measured[i].samples, measured[j].samples).items():
                tables.setdefault(name, []).append(frame.assign(**named)[[*named, *frame.columns]])
    return known({name: pd.concat(frames, ignore_index=True) for name, frames in tables.items()}, measures)


def compare_samples(
    measures: Sequence[PairMeasure], first: dict[SampleKey, TokenSample], second: dict[SampleKey, TokenSample]
) -> Tables:
    """The tables of pair measures on two models' samples of the same text."""
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
    """Both samples restricted to their common occurrences, in the first one's order; `words` as in `PairMeasure`."""
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
            f"The tokenizer of {sample.facts.model} is slow and does not report words, so its tokens cannot be matched "
            "to another tokenizer's. Load the model with a fast tokenizer."
        )
    return sample.words(merge)


def _places(sample: TokenSample, column: Literal["position", "word"]) -> dict[tuple[int, int], int]:
    """Row of each (sentence, position) or (sentence, word)."""
    at = sample.occurrences
    keys = zip(at.sentence.tolist(), getattr(at, column).tolist(), strict=True)
    return {key: i for i, key in enumerate(keys)}
