"""`prune`: a model of any form, and a number or share of its heads, in one call."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, accepted_corpus, accepted_model
from infoflow.foundation import UserError, as_written
from infoflow.models import Anatomy, Model
from infoflow.pruning import Pruned, prune_to
from infoflow.training import trained_objective


def prune(
    model: Model | Path | str,
    keep: int | str,
    corpus: Corpus | Path | str = "tatoeba-en-fr",
    *,
    out: Path | str = "runs/prune",
    source: Path | str | None = None,
    by: Literal["importance", "confidence", "relevance", "random"] = "importance",
    kinds: Sequence[str] = (),
    sentences: int | None = 1000,
    seed: int = 0,
    masked: Path | str | None = None,
) -> Pruned:
    """Keep the attention heads that matter most, really remove the others, and write the smaller model; no training.

    >>> small = prune("all-MiniLM-L6-v2", "50%", "own.txt", out="small")  # doctest: +SKIP
    >>> small.quality  # doctest: +SKIP

    Args:
        model: A loaded model, a folder, a .gguf file, or a name.
        keep: Heads of the whole model that are left: a number, or a share such as "50%".
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
    return prune_to(
        loaded,
        accepted_corpus(corpus),
        _kept(keep, loaded.anatomy),
        out,
        by=by,
        kinds=tuple(kinds) or None,
        sentences=sentences,
        seed=seed,
        options=PassOptions(corruption=None if source is None else trained_objective(str(source))),
        masked=masked,
    )


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
