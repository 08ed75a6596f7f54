"""`score_pairs`: BERTScore of pairs of texts by every layer of models, in a run folder with its page."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, provenance
from infoflow.probing import (
    BERT_SCORE,
    BERT_SCORE_LAYERS,
    BERT_SCORE_PAIRS,
    TextPairs,
    bert_score_tables,
    read_text_pairs,
)
from infoflow.report import check_replaceable, write_report
from infoflow.results import KEYS, RunFolder

from ._given import AnalyzeOptions, given_models
from ._given_scores import GIVEN_SCORES, given_scores
from ._run import Run

KIND = "bert-score"
_SCHEMAS = {schema.name: schema for schema in (BERT_SCORE_LAYERS, BERT_SCORE_PAIRS, BERT_SCORE, GIVEN_SCORES)}


def score_pairs(
    models: Sequence[Path | str] | Path | str,
    pairs: TextPairs | Path | str,
    out: Path | str = "runs/bert-score",
    *,
    columns: Sequence[str | int] = (),
    layer: int | None = None,
    idf: bool = False,
    rescale: bool = False,
    baseline_pairs: int = 1000,
    control: bool = True,
    tokenizer: str | None = None,
    device: str = "auto",
    seed: int = 0,
) -> Run:
    """How alike are pairs of texts by each layer of models, and which layer agrees best with people?

    Each model stands beside random pairs of the same texts, and beside its own architecture with random weights. Claims
    about it are judged by `check_findings` on the run's folder.

    >>> score_pairs("all-MiniLM-L6-v2", "pairs.tsv", out="runs/pairs")  # doctest: +SKIP

    Args:
        models: What `load_model` takes: folders, .gguf files or names; one, or several in a list.
        pairs: A file for `read_text_pairs`, or pairs.
        out: The run folder.
        columns: Of the candidate, the reference and the score in a file, see `read_text_pairs`.
        layer: State 0..L; None: all.
        idf: Weigh rare tokens more.
        rescale: From random pairs (0) to equal ones (1).
        baseline_pairs: Random pairs of the baseline.
        control: The same architecture with random weights too.
        tokenizer: Folder or name; None: the one beside the weights.
        device: As of `load_model`.
        seed: Of the random weights.

    Returns:
        The run, with the tables `bert_score_layers`, `bert_score_pairs`, `bert_score` (where people scored the pairs)
        and `given_scores`.

    Raises:
        UserError: The pairs or a model cannot be read, a model has no such layer, or `out` holds another kind of run.
    """
    sources = [str(models)] if isinstance(models, str | Path) else [str(one) for one in models]
    if not sources:
        raise UserError("bert-score needs a model. Got none. Give a folder, a .gguf file, or a name on the model hub.")
    if baseline_pairs < 1:
        raise UserError(f"The baseline needs one random pair or more. Got {baseline_pairs}.")
    read = pairs if isinstance(pairs, TextPairs) else read_text_pairs(pairs, columns)
    options = AnalyzeOptions(control=control, seed=seed, tokenizer=tokenizer, device=device)
    run = RunFolder(out)
    if (kind := run.read().get("kind", KIND)) != KIND:
        raise UserError(f"{out} was written by infoflow {kind}. Choose another --out.")
    check_replaceable(run.report)
    corpus = Corpus.from_sentences(list(dict.fromkeys([*read.candidates, *read.references])), read.name)
    frames: dict[str, list[pd.DataFrame]] = {}
    told = []
    for given in given_models(sources, options):
        model = given.load(options)
        how = {"layer": layer, "idf": idf, "rescale": rescale, "baseline_pairs": baseline_pairs}
        tables = bert_score_tables(model, read, **how)
        tables[GIVEN_SCORES.name] = given_scores(model, corpus)
        keys = given.subject(model).keys()
        for name, frame in tables.items():
            if name != BERT_SCORE_PAIRS.name or given.trained:  # single pairs by random weights say nothing
                frames.setdefault(name, []).append(frame.assign(**keys))
        if given.trained:
            named = {("name" if name == "model" else name): value for name, value in keys.items()}
            told.append({**named, "parameters": sum(one.numel() for one in model.module.parameters())})
    plan = {"models": sources, "pairs": read.digest, "layer": layer, "idf": idf, "rescale": rescale}
    run.tables.clear()
    for name, parts in frames.items():
        run.tables.write(pd.concat(parts, ignore_index=True), _SCHEMAS[name].with_keys(*KEYS))
    run.update(
        kind=KIND,
        title="Pairs of texts scored by layer",
        plan=plan,
        corpus={"name": corpus.name, "digest": corpus.digest, "sentences": len(corpus)},
        models=told,
        warnings=[],
        failures=[],
        command=provenance()["command"],
        provenance=provenance(),
    )
    write_report(run)
    return Run(run)
