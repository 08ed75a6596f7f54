"""`prune`: reduce a model of any form to a number or share of its heads, or to several, in one call."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, accepted_corpus, accepted_model
from infoflow.foundation import UserError, as_written, check_own_folder, provenance
from infoflow.models import Anatomy, Model
from infoflow.report import check_output, write_report
from infoflow.results import KEYS, RunFolder
from infoflow.studies._analyze import described_corpus
from infoflow.studies._given import given_subject
from infoflow.studies._study import removed_if_refused
from infoflow.training import trained_objective

from ..measures import PRUNED_HEADS, PRUNING, Pruned, PrunedToEach, prune_to, prune_to_each

By = Literal["importance", "confidence", "relevance", "random"]
_CORPUS, _KIND = "tatoeba-en-fr", "prune"


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
    """Keep the attention heads that matter most, physically remove the others, and write the smaller model untrained.

    >>> small = prune("all-MiniLM-L6-v2", "50%", "own.txt", out="small")  # doctest: +SKIP
    >>> small.quality  # doctest: +SKIP

    Args:
        model: A loaded model, a folder, a .gguf file, or a name.
        keep: Heads to keep in the whole model: a number, or a share such as "50%". A list such as [120, 96, "50%"]
            writes a smaller model for each to `out/keep-NUMBER`, and a page with the curve to `out`.
        corpus: Corpus, as for `load_corpus`: half ranks the heads, half scores.
        out: Folder for the smaller model: new, or written by an earlier call.
        source: Folder of a loaded model that infoflow trained: it records how the model read text.
        by: The ranking of the heads.
        kinds: Kinds of attention whose heads may be removed: encoder-self, decoder-self, decoder-cross; none: all.
        sentences: Maximum number of sentences, chosen by hash.
        seed: Seed of the random order.
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
    check_own_folder(run.path, "run.json", "A curve of pruned models")
    check_output(run, _KIND)
    numbers = [_kept(one, loaded.anatomy) for one in keep]
    with removed_if_refused(run):
        run.update(kind=_KIND, title=f"{loaded.name} with fewer heads")  # lets an interrupted call recognise its folder
        found = prune_to_each(loaded, text, numbers, run.path, **how)
    return replace(found, report=_reported(run, loaded, text, found))


def _reported(run: RunFolder, model: Model, corpus: Corpus, found: PrunedToEach) -> Path:
    """Write the page of the curve, from the same tables that a study has."""
    keys = given_subject(model).keys()
    for schema, frame in ((PRUNING, found.pruning), (PRUNED_HEADS, found.pruned_heads)):
        run.tables.write(frame.assign(**keys), schema.with_keys(*KEYS))
    told = {name: value for name, value in keys.items() if name != "model"}
    parameters = sum(one.numel() for one in model.module.parameters())
    run.update(
        kind=_KIND,
        title=f"{model.name} with fewer heads",
        corpus=described_corpus(corpus),
        models=[{"name": model.name, **told, "parameters": parameters}],
        timings={},
        warnings=[],
        failures=[],
        command=provenance()["command"],
        provenance=provenance(),
    )
    return write_report(run)


def _kept(keep: int | str, anatomy: Anatomy) -> int:
    """Number of heads to keep; a share is rounded to the nearest head."""
    text = str(keep)
    try:
        if text.endswith("%"):
            return round(float(text[:-1]) / 100 * sum(one.num_heads for one in anatomy.attentions()))
        return int(text)
    except (ValueError, OverflowError):
        raise UserError(
            f'keep must be a number of heads or a share such as "50%". Got {as_written(keep)}. Write one of them.'
        ) from None
