"""Prune a model to a number of heads, into a folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions
from infoflow.foundation import UserError, block_effects, block_interval, hash64_array
from infoflow.heads import Head, all_heads
from infoflow.models import Model, check_free, save_pruned, translate

from ._card import model_card
from ._curve import quality
from ._greedy import group_sizes, rank_heads
from ._head_gates import gated_heads
from ._masked import save_masked
from ._prune import prune
from ._speed import compare_speed

_BLEU_SENTENCES, _SAMPLES = 200, 3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pruned:
    """A pruned model, and what it costs and saves."""

    model: Model
    removed: tuple[Head, ...]
    folder: Path
    quality: pd.DataFrame  # metric, before, after, low, high (of the change), sentences
    speed: pd.DataFrame  # see `compare_speed`
    samples: pd.DataFrame  # source, reference, before, after: translations beside each other; empty of other models
    masked: Path | None = None  # a copy with zeros, where one was asked for


def prune_to(
    model: Model,
    corpus: Corpus,
    keep: int,
    out: Path | str,
    *,
    by: str = "importance",
    kinds: Sequence[str] | None = None,
    sentences: int | None = None,
    seed: int = 0,
    options: PassOptions | None = None,
    masked: Path | str | None = None,
) -> Pruned:
    """Keep the most valuable heads, really remove the others, and write the smaller model.

    Half of the sentences (by the hash of their text) rank the heads, the other half says what it costs. There is no
    training: `learn_gates` lets the model adapt.

    Args:
        model: A loaded model with its tokenizer.
        corpus: Sentences; with translations for a sequence-to-sequence model.
        keep: Heads of the whole model that are to be left.
        out: Folder for the smaller model.
        by: `"importance"`, `"confidence"`, `"relevance"` or `"random"`.
        kinds: Kinds of attention whose heads may go; all by default.
        sentences: To read at most, chosen by hash.
        seed: Of the random order.
        options: How the corpus is run.
        masked: Also write a copy of the whole model there, with zeros in place of the removed heads, which plain
            transformers load (see `save_masked`).

    A translation model is scored by BLEU too, on the first 200 of the scoring sentences, and three of its translations
    are kept from before and after.

    Raises:
        UserError: `keep` is not a number of heads that can be kept, the family allows no removal, or the folder holds
            something else.
    """
    check_free(out)
    total, pool = len(all_heads(model.anatomy)), gated_heads(model, kinds)
    least = total - len(pool)
    if not least <= keep <= total:
        fixed = f" ({least} heads of other kinds stay)" if least else ""
        raise UserError(f"--keep must lie between {least} and the number of heads, {total}{fixed}. Got {keep}.")
    if keep == total:
        raise UserError(f"{model.name} has {total} heads: there is nothing to remove. Give a smaller --keep.")
    if min(len(corpus), len(corpus) if sentences is None else sentences) < 2:
        raise UserError(f"Ranking and scoring need two sentences at least. Give more of {corpus.name}.")
    order = hash64_array(("prune-halves",), corpus.content_ids).argsort(kind="stable")[:sentences]
    halves = [corpus.select(sorted(part.tolist())) for part in (order[::2], order[1::2])]
    ranked = rank_heads(model, halves[0], by, kinds=kinds, draw=seed, options=options)
    removed = _whole_groups(model, ranked, total - keep)
    smaller = prune(model, removed)
    before = quality(model, halves[1], frozenset(), options=options)
    after = quality(smaller, halves[1], frozenset(), options=options)
    scores = pd.concat([_change(before, after), *_bleu(model, smaller, halves[1], options)], ignore_index=True)
    folder = save_pruned(smaller, out, origin={"method": by, "keep": keep, "kinds": list(kinds or ["all"])})
    card = (by, (keep, total), scores)
    (folder / "README.md").write_text(model_card(model, folder.name, *card), encoding="utf-8")
    if masked is not None:
        masked = save_masked(model, removed, masked, model_card(model, Path(masked).name, *card, masked=True))
    return Pruned(
        model=smaller,
        removed=tuple(sorted(removed)),
        folder=folder,
        quality=scores,
        speed=compare_speed([model, smaller]),
        samples=_samples(model, smaller, halves[1]),
        masked=None if masked is None else Path(masked),
    )


def _translates(model: Model, corpus: Corpus) -> bool:
    return model.task == "seq2seq" and model.tokenizer is not None and "translation" in corpus.columns


def _bleu(model: Model, smaller: Model, corpus: Corpus, options: PassOptions | None) -> list[pd.DataFrame]:
    """BLEU before and after, of a model that translates."""
    if not _translates(model, corpus):
        return []
    few = corpus.select(list(range(min(len(corpus), _BLEU_SENTENCES))))
    return [_change(*(quality(one, few, frozenset(), "bleu", options=options) for one in (model, smaller)))]


def _samples(model: Model, smaller: Model, corpus: Corpus) -> pd.DataFrame:
    columns = ["source", "reference", "before", "after"]
    if not _translates(model, corpus):
        return pd.DataFrame(columns=columns)
    few = list(corpus.select(list(range(min(len(corpus), _SAMPLES)))))
    texts = [one.text for one in few]
    rows = zip(texts, [one.translation for one in few], translate(model, texts), translate(smaller, texts), strict=True)
    return pd.DataFrame(list(rows), columns=columns)


def _whole_groups(model: Model, ranked: list[Head], num: int) -> list[Head]:
    """The first `num` heads of a ranking, in which heads of a group stand together."""
    sizes = group_sizes(model)
    groups = [(*head[:3], head[3] // sizes[head[:3]]) for head in ranked]
    if num < len(groups) and groups[num - 1] == groups[num]:
        first = groups.index(groups[num])
        fewer, more = (len(all_heads(model.anatomy)) - n for n in (first + groups.count(groups[num]), first))
        raise UserError(
            f"Heads of {model.name} share keys and values in groups of {groups.count(groups[num])}, which can only be "
            f"removed together: --keep {fewer} or {more} would do. Got {len(all_heads(model.anatomy)) - num}."
        )
    return ranked[:num]


def _change(before: dict, after: dict) -> pd.DataFrame:
    change = after["scores"] - before["scores"]
    low, high = block_interval(float(change[0]), block_effects(float(change[0]), change[1:]))
    row = [before["metric"], before["scores"][0], after["scores"][0], change[0], low, high, before["count"]]
    return pd.DataFrame([row], columns=["metric", "before", "after", "change", "low", "high", "sentences"])
