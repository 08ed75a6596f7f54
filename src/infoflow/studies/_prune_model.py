"""`prune`: a model of any form, and a number or share of its heads, or several, in one call."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, accepted_corpus, accepted_model
from infoflow.foundation import UserError, as_written, provenance
from infoflow.models import Anatomy, Model
from infoflow.pruning import PRUNED_HEADS, PRUNING, Pruned, PrunedToEach, prune_to, prune_to_each
from infoflow.report import check_replaceable, write_report
from infoflow.results import KEYS, RunFolder
from infoflow.training import trained_objective

from ._given import given_subject

By = Literal["importance", "confidence", "relevance", "random"]
_CORPUS = "tatoeba-en-fr"


@overload
def prune(
    model: Model | Path | str,
    keep: int | str,
    corpus: Corpus | Path | str = ...,
    *,
    out: Path | str = ...,
    source: Path | str | None = ...,
    by: By = ...,
    kinds: Sequence[str] = ...,
    sentences: int | None = ...,
    seed: int = ...,
    masked: Path | str | None = ...,
) -> Pruned: ...
@overload
def prune(
    model: Model | Path | str,
    keep: list[int | str] | list[int] | list[str] | tuple[int | str, ...],
    corpus: Corpus | Path | str = ...,
    *,
    out: Path | str = ...,
    source: Path | str | None = ...,
    by: By = ...,
    kinds: Sequence[str] = ...,
    sentences: int | None = ...,
    seed: int = ...,
    masked: Path | str | None = ...,
) -> PrunedToEach: ...
def prune(
    model: Model | Path | str,
    keep: int | str | list[int | str] | list[int] | list[str] | tuple[int | str, ...],
    corpus: Corpus | Path | str = _CORPUS,
    *,
    out: Path | str = "runs/prune",
    source: Path | str | None = None,
    by: By = "importance",
    kinds: Sequence[str] = (),
    sentences: int | None = 1000,
    seed: int = 0,
    masked: Path | str | None = None,
) -> Pruned | PrunedToEach:
    """Keep the attention heads that matter most, really remove the others, and write the smaller model; no training.

    >>> small = prune("all-MiniLM-L6-v2", "50%", "own.txt", out="small")  # doctest: +SKIP
    >>> small.quality  # doctest: +SKIP

    Args:
        model: A loaded model, a folder, a .gguf file, or a name.
        keep: Heads of the whole model that are left: a number, or a share such as "50%"; or a list of them, such as
            [120, 96, "50%"], for a smaller model of each in `out/keep-NUMBER`, and a page with the curve in `out`.
        corpus: What `load_corpus` takes: half of it ranks the heads, half scores.
        out: Folder for the smaller model: a new one, or one that an earlier call wrote.
        source: Where a loaded model came from, if it is one that infoflow trained: its folder says how it read text.
        by: What ranks the heads.
        kinds: Kinds of attention whose heads may go: encoder-self, decoder-self, decoder-cross; none: all.
        sentences: To read at most, chosen by hash.
        seed: Of the random order.
        masked: Folder for a copy of the whole model with zeros in place of the removed heads.

    Raises:
        UserError: See `prune_to`; or `keep` is neither a number nor a share.
    """
    loaded = accepted_model(model)
    if source is None and isinstance(model, str | Path):
        source = model
    text = accepted_corpus(corpus)
    how: dict[str, Any] = {
        "by": by,
        "kinds": tuple(kinds) or None,
        "sentences": sentences,
        "seed": seed,
        "options": PassOptions(corruption=None if source is None else trained_objective(str(source))),
        "masked": None if masked is None else Path(masked),
    }
    if isinstance(keep, int | str):
        return prune_to(loaded, text, _kept(keep, loaded.anatomy), out, **how)
    if not keep:
        raise UserError("keep must hold a number of heads. Got an empty list. Write for example [120, 96, 72].")
    run = RunFolder(out)
    _check_own(run)
    found = prune_to_each(loaded, text, [_kept(one, loaded.anatomy) for one in keep], run.path, **how)
    return replace(found, report=_reported(run, loaded, text, found))


def _check_own(run: RunFolder) -> None:
    """Refuse a folder that holds something else."""
    if run.path.is_dir() and any(run.path.iterdir()) and run.read().get("kind") != "prune":
        raise UserError(
            f"Several pruned models get a folder of their own. {run.path} holds something else: choose another --out."
        )
    check_replaceable(run.report)


def _reported(run: RunFolder, model: Model, corpus: Corpus, found: PrunedToEach) -> Path:
    """The page of the curve, from tables as a study has them."""
    keys = given_subject(model).keys()
    for schema, frame in ((PRUNING, found.pruning), (PRUNED_HEADS, found.pruned_heads)):
        run.tables.write(frame.assign(**keys), schema.with_keys(*KEYS))
    words = int(corpus.word_counts.sum())
    told = {name: value for name, value in keys.items() if name != "model"}
    parameters = sum(one.numel() for one in model.module.parameters())
    run.update(
        kind="prune",
        title=f"{model.name} with fewer heads",
        corpus={"name": corpus.name, "digest": corpus.digest, "sentences": len(corpus), "words": words},
        models=[{"name": model.name, **told, "parameters": parameters}],
        timings={},
        warnings=[],
        failures=[],
        command=provenance()["command"],
        provenance=provenance(),
    )
    return write_report(run)


def _kept(keep: int | str, anatomy: Anatomy) -> int:
    """How many heads that is; a share is rounded to the nearest head."""
    text = str(keep)
    try:
        if text.endswith("%"):
            return round(float(text[:-1]) / 100 * sum(one.num_heads for one in anatomy.attentions()))
        return int(text)
    except (ValueError, OverflowError):
        raise UserError(
            f'keep must be a number of heads or a share such as "50%". Got {as_written(keep)}. Write one of them.'
        ) from None
