"""`probe` and `score_pairs`: analyses that make the tables of requested probes, or of text pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, current_display, did_you_mean
from infoflow.report import check_output, write_report
from infoflow.results import GIVEN_SCORES, KEYS, RunFolder
from infoflow.studies import AnalyzeOptions, Run, analyze, external_scores
from infoflow.studies._analyze import described_model
from infoflow.studies._external import changed, external_models

from .. import measures
from ._probe_model import probing_tables


def probe(
    model: Path | str,
    task: Sequence[str] | str = (),
    probes: Sequence[str] | str = (),
    *,
    options: AnalyzeOptions | None = None,
    out: Path | str = "runs/probe",
    **changes: Any,
) -> Run:
    """Run probes on each layer of a model, with the majority class, random weights and a control task for comparison.

    >>> run = probe("all-MiniLM-L6-v2", "length", corpus="own.txt")  # doctest: +SKIP
    >>> run.tables["probe_scores"]  # doctest: +SKIP

    Args:
        model: A folder, a .gguf file or a name, as for `load_model`.
        task: One task name or several, such as upos, arc, ner-spans, length, minimal-pairs or a column of tags.
        probes: One or several of linear, mlp, edge, online, variational, structural, attention. Default: linear.
        options: Corpus and settings, as for `analyze`.
        out: The run folder.
        changes: Fields of `AnalyzeOptions` by name, such as `corpus="treebank.conllu"`.

    Raises:
        UserError: No task is named, the probes have no such table, or `analyze` rejects its input.
    """
    options = changed(options or AnalyzeOptions(), changes)
    named = [(each,) if isinstance(each, str) else tuple(each) for each in (task, probes)]
    return analyze([model], _with_probes(options, *named), out)


def _with_probes(options: AnalyzeOptions, named: tuple[str, ...], probes: tuple[str, ...]) -> AnalyzeOptions:
    """The options, extended by the tasks, the probes, and the tables that the probes write."""
    plan = options.probing
    plan = replace(plan, tasks=named or plan.tasks, probes=probes or plan.probes)
    tables = probing_tables(plan)
    if not tables:
        raise UserError(f"No task was named.\n{_catalogue()}\nWrite for example --task upos --corpus treebank.conllu.")
    if unknown := [name for name in options.only if name not in tables]:
        meant = did_you_mean(unknown[0], tables)
        raise UserError(f"--only has no table {unknown[0]} of these probes.{meant} Choose among: {', '.join(tables)}.")
    return replace(options, probing=plan, only=options.only or tables)


def _catalogue() -> str:
    rows = [(task.name, task.about, task.needs) for task in measures.tasks()]
    rows.append(
        (measures.MINIMAL_PAIRS_TASK, "which of two sentences the model finds more likely, without a probe", "bad")
    )
    width = max(len(name) for name, _, _ in rows)
    lines = [f"  {name:{width}}  {about}{f' (needs {needs})' if needs else ''}" for name, about, needs in rows]
    return "\n".join([*lines, f"  {'NAME':{width}}  the tag in any column NAME; NAME-spans: its spans, if it is IOB2"])


KIND = "bert-score"
_SCHEMAS = {
    schema.name: schema
    for schema in (measures.BERT_SCORE_LAYERS, measures.BERT_SCORE_PAIRS, measures.BERT_SCORE, GIVEN_SCORES)
}


def score_pairs(
    models: Sequence[Path | str] | Path | str,
    pairs: measures.TextPairs | Path | str,
    out: Path | str = "runs/bert-score",
    *,
    columns: Sequence[str | int] = (),
    layer: int | None = None,
    idf: bool = False,
    rescale: bool = False,
    baseline_pairs: int = 1000,
    control: bool = True,
    tokenizer: str | None = None,
    source_language: str = "",
    target_language: str = "",
    prefix: str = "",
    device: str = "auto",
    seed: int = 0,
    names: Sequence[str] = (),
) -> Run:
    """How similar pairs of texts are at each layer of models, and which layer agrees best with human scores.

    The controls of each model are random pairs of the same texts, and its own architecture with random weights.
    `check_findings` on the run folder judges the claims about such scores.

    >>> score_pairs("all-MiniLM-L6-v2", "pairs.tsv", out="runs/pairs")  # doctest: +SKIP

    Args:
        models: A folder, .gguf file or name, as for `load_model`, or a list of several.
        pairs: A file that `read_text_pairs` can read, or the pairs themselves.
        out: The run folder.
        columns: Columns of candidate, reference and score in a file; see `read_text_pairs`.
        layer: Layer of the states, 0..L; None: all layers.
        idf: Give rare tokens more weight.
        rescale: Rescale scores so that random pairs have 0 and equal texts have 1.
        baseline_pairs: Number of random pairs for the baseline.
        control: Also score the same architecture with random weights.
        tokenizer: Folder or name of a tokenizer; None: the one stored with the weights.
        source_language: As for `load_model`.
        target_language: As for `load_model`.
        prefix: As for `load_model`.
        device: As for `load_model`.
        seed: Seed of the random weights.
        names: The models' names in tables and figures; by default, they come from the paths.

    Returns:
        The run, with the tables `bert_score_layers`, `bert_score_pairs`, `bert_score` (if people scored the pairs)
        and `given_scores`.

    Raises:
        UserError: The pairs or a model cannot be read, a model has no such layer, or `out` holds another kind of run.
    """
    sources = [str(models)] if isinstance(models, str | Path) else [str(one) for one in models]
    if not sources:
        raise UserError("bert-score needs a model. Got none. Name a folder, a .gguf file, or a model on the hub.")
    if baseline_pairs < 1:
        raise UserError(f"The baseline needs at least one random pair. Got {baseline_pairs}.")
    read = pairs if isinstance(pairs, measures.TextPairs) else measures.read_text_pairs(pairs, columns)
    marks = {"source_language": source_language, "target_language": target_language, "prefix": prefix}
    named = {"tokenizer": tokenizer, "names": tuple(names)}
    options = AnalyzeOptions(control=control, seed=seed, device=device, **named, **marks)
    run = RunFolder(out)
    check_output(run, KIND)
    corpus = Corpus.from_sentences(list(dict.fromkeys([*read.candidates, *read.references])), read.name)
    how = {"layer": layer, "idf": idf, "rescale": rescale}
    frames, models_json = _scored(sources, options, read, corpus, how | {"baseline_pairs": baseline_pairs})
    run.tables.clear()
    for name, parts in frames.items():
        run.tables.write(pd.concat(parts, ignore_index=True), _SCHEMAS[name].with_keys(*KEYS))
    run.record(
        kind=KIND,
        title="Pairs of texts scored by layer",
        plan={"models": sources, "pairs": read.digest, **how},
        corpus={"name": corpus.name, "digest": corpus.digest, "sentences": len(corpus)},
        models=models_json,
    )
    write_report(run)
    return Run(run)


def _scored(
    sources: Sequence[str], options: AnalyzeOptions, pairs: measures.TextPairs, corpus: Corpus, how: Mapping[str, Any]
) -> tuple[dict[str, list[pd.DataFrame]], list[dict[str, Any]]]:
    """The tables of each model and control by name, and the trained models for run.json."""
    frames: dict[str, list[pd.DataFrame]] = {}
    trained = []
    every = external_models(sources, options)
    with current_display().progress("Scoring pairs", len(every)) as progress:
        for external in every:
            model = external.load(options)
            tables = measures.bert_score_tables(model, pairs, **how) | {
                GIVEN_SCORES.name: external_scores(model, corpus)
            }
            subject = external.subject(model)
            for name, frame in tables.items():
                if (
                    name != measures.BERT_SCORE_PAIRS.name or external.trained
                ):  # random weights: single pairs say nothing
                    frames.setdefault(name, []).append(frame.assign(**subject.keys()))
            if external.trained:
                parameters = sum(one.numel() for one in model.module.parameters())
                trained.append(described_model(subject, parameters))
            progress.advance(1)
    return frames, trained
