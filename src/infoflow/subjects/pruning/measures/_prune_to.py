"""Prune a model to a number of heads, into a folder; or keep it at full size with zeros."""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions
from infoflow.foundation import (
    Progress,
    UserError,
    atomic_folder,
    block_effects,
    block_interval,
    check_own_folder,
    current_display,
    dealt,
    hash64_array,
    in_markdown,
)
from infoflow.heads import Head, SentenceFunction, all_heads, head_set, prune, silence
from infoflow.models import Model, check_free, require_whole, save_model, save_pruned, translate
from infoflow.objectives import AbstractObjective

from ._curve import compare_speed, quality
from ._greedy import cosine_to, group_sizes, judged_by_vectors, rank_heads
from ._head_gates import gated_heads
from ._train_on import trained_on, training_objective

# A full-size model whose removed heads are zeros; any program can load it.


MASKED = "masked.json"


def save_masked(
    model: Model, heads: Iterable[Sequence[str | int]], folder: Path | str, card: Mapping[str, Any] | None = None
) -> Path:
    r"""Write a copy of the model whose output projection ignores some heads, in the format of `save_pretrained`.

    $$ W_O[:, \text{columns of a removed head}] = 0 $$

    The logits equal those of `prune(model, heads)` and `ablate(model, heads)`, up to rounding; the model gets neither
    smaller nor faster. `AutoModel.from_pretrained` and any other program can load the folder.

    Args:
        model: The whole model; it is not changed.
        heads: (stack, kind, layer, head) of each head to silence.
        folder: A new folder, or one written by this function.
        card: Contents of its README.md: `title`, `text`, `scores`, `tags`, `results`, `known` and `own_weights`.
    """
    path = Path(folder)
    check_own_folder(path, MASKED, "A masked model")
    chosen = sorted(head_set(model, heads))
    require_whole(model.module, model.name, "Silencing heads")
    module = copy.deepcopy(model.module)
    silence(model, module, chosen)
    with atomic_folder(path) as temporary:
        title = f"{model.name} with {len(chosen)} attention heads set to zero"
        save_model(module, temporary, model.tokenizer, model.target_tokenizer, card or {"title": title})
        (temporary / MASKED).write_text(json.dumps({"zeroed": chosen}) + "\n", encoding="utf-8")
    return path


def check_masked(masked: Path, out: Path) -> None:
    """Check before any other work that a masked model can be written to `masked` and a pruned one to `out`."""
    check_own_folder(masked, MASKED, "A masked model")
    one, other = masked.resolve(), out.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise UserError(f"The masked model needs a different folder from the pruned one ({out}). Got {masked}.")


# Prune a model to a number of heads, into a folder.


_BLEU_SENTENCES, _SAMPLES = 200, 3
_UNTRAINED = "There was no further training."
_SMALLER = "transformers cannot build layers that lack heads; the model's own code in `modeling_pruned.py` can."
_MASKED = (
    "The removed heads are zeros in the output projections: the scores equal those of the smaller model, and size and "
    "speed are those of the original."
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pruned:
    """A pruned model, with its cost and savings."""

    model: Model
    removed: tuple[Head, ...]
    folder: Path
    quality: pd.DataFrame  # metric, before, after, low, high (of the change), sentences
    speed: pd.DataFrame  # see `compare_speed`
    samples: pd.DataFrame  # source, reference, before, after: translations side by side; empty for other models
    masked: Path | None = None  # a copy with zeros, if requested
    scores: Sequence[dict] = ()  # scores of the pruned model with replicates, see `infoflow.pruning.quality`


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """Training after pruning: number of updates, and highest learning rate."""

    updates: int
    rate: float = 1e-4


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
    recover: Recovery | None = None,
) -> Pruned:
    """Keep the most valuable heads, remove the others, and write the smaller model.

    Half of the sentences (by the hash of their text) rank the heads, the other half measures the cost. The model is not
    trained; `learn_gates` lets a model adapt.

    Args:
        model: A loaded model with its tokenizer.
        corpus: Sentences; with translations for a sequence-to-sequence model.
        keep: Number of heads of the whole model to keep.
        out: Folder for the smaller model.
        by: `"importance"`, `"confidence"`, `"relevance"` or `"random"`.
        kinds: Kinds of attention whose heads may be removed; default: all.
        sentences: Maximum number to read, chosen by hash.
        seed: Seeds the random order.
        options: How the corpus is run.
        masked: Folder for an additional copy of the whole model, with zeros in place of the removed heads, which plain
            transformers can load (see `save_masked`).
        recover: Train the smaller model further, on all sentences of the corpus that are not used to score it.

    An encoder that predicts no tokens is scored by the cosine of its sentence vectors (the mean of the last states)
    with the whole model's. A translation model is also scored by BLEU, on the first 200 of the scoring sentences, and
    three of its translations before and after are saved.
    """
    check_free(out)
    if masked is not None:
        check_masked(Path(masked), Path(out))
    with current_display().progress(f"Pruning {model.name}", 2) as progress:
        start = Start.of(
            model, corpus, [keep], by=by, kinds=kinds, sentences=sentences, seed=seed, options=options, recover=recover
        )
        progress.advance(1)
        return start.pruned(keep, Path(out), None if masked is None else Path(masked))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Start:
    """Data shared by all numbers of heads to keep: the ranking, and the scores before pruning."""

    model: Model
    by: str
    kinds: Sequence[str] | None
    options: PassOptions | None
    ranked_on: Corpus
    scored_on: Corpus
    ranked: list[Head]
    removed: dict[int, list[Head]]  # by number of heads to keep
    metric: str | SentenceFunction  # the loss, or the cosine to the whole model's sentence vectors
    before: list[dict]  # see `quality`: the first metric, and BLEU for a translation model
    samples: pd.DataFrame  # source, reference, before
    recover: Recovery | None
    trained_on: Corpus  # all sentences that are not used for scoring
    objective: AbstractObjective | None  # objective of further training
    seed: int

    @classmethod
    def of(
        cls,
        model: Model,
        corpus: Corpus,
        keep: Sequence[int],
        *,
        by: str,
        kinds: Sequence[str] | None,
        sentences: int | None,
        seed: int,
        options: PassOptions | None,
        recover: Recovery | None = None,
    ) -> "Start":
        """Rank the heads and score the whole model."""
        _check_numbers(model, keep, kinds)
        if min(len(corpus), len(corpus) if sentences is None else sentences) < 2:
            raise UserError(f"Ranking and scoring need at least two sentences. Read more of {corpus.name}.")
        trained = None if options is None else options.corruption
        objective = None if recover is None else training_objective(model, corpus, trained)
        order = hash64_array(("prune-halves",), corpus.content_ids).argsort(kind="stable")[:sentences]
        half = dealt(corpus.text_ids[order], 2)  # no copy of a sentence that ranks the heads is used for scoring
        ranked_on, scored_on = [corpus.select(np.sort(order[half == part])) for part in range(2)]
        total = len(all_heads(model.anatomy))
        with current_display().progress("ranking heads", 2) as progress:
            ranked = rank_heads(model, ranked_on, by, kinds=kinds, draw=seed, options=options)
            progress.advance(1)
            metric = cosine_to(model, scored_on, options) if judged_by_vectors(model) else "loss"
            before = _scores(model, scored_on, metric, options)
            progress.advance(1)
        return cls(
            model=model,
            by=by,
            kinds=kinds,
            options=options,
            ranked_on=ranked_on,
            scored_on=scored_on,
            ranked=ranked,
            removed={one: _whole_groups(model, ranked, total - one) for one in keep},
            metric=metric,
            before=before,
            samples=_samples(model, scored_on),
            recover=recover,
            trained_on=corpus.select(np.flatnonzero(~np.isin(corpus.text_ids, scored_on.text_ids))),
            objective=objective,
            seed=seed,
        )

    @property
    def total(self) -> int:
        return len(all_heads(self.model.anatomy))

    def scored(self, keep: int) -> tuple[Model, str, list[dict]]:
        """The model with `keep` heads, how it was trained further, and its scores."""
        with current_display().progress(f"keeping {keep} heads", 1 if self.recover is None else 3) as progress:
            smaller, training = self._recovered(prune(self.model, self.removed[keep]), progress)
            if self.recover is not None:
                current_display().note(f"{keep} heads ({self.by}). {training}")
            after = _scores(smaller, self.scored_on, self.metric, self.options)
            progress.advance(1)
        return smaller, training, after

    def at_random(self, draw: int) -> "Start":
        """The same data with a random order of the heads."""
        ranked = rank_heads(self.model, self.ranked_on, "random", kinds=self.kinds, draw=draw, options=self.options)
        removed = {keep: _whole_groups(self.model, ranked, self.total - keep) for keep in self.removed}
        return replace(self, by="random", ranked=ranked, removed=removed)

    def pruned(self, keep: int, out: Path, masked: Path | None) -> Pruned:
        """The model with `keep` heads, in its folder."""
        removed = self.removed[keep]
        smaller, training, after = self.scored(keep)
        quality = pd.concat([_change(*both) for both in zip(self.before, after, strict=True)], ignore_index=True)
        origin = {"method": self.by, "keep": keep, "kinds": list(self.kinds or ["all"])}
        card = _card(self.model.name, self.by, (keep, self.total, len(self.ranked)), quality, training)
        card["own_weights"] = self.recover is not None
        folder = save_pruned(smaller, out, origin, card | {"text": f"{card['text']} {_SMALLER}"})
        if masked is not None:
            masked = save_masked(self.model, removed, masked, card | {"text": f"{card['text']} {_MASKED}"})
        later = translate(smaller, self.samples["source"].tolist()) if len(self.samples) else []
        return Pruned(
            model=smaller,
            removed=tuple(sorted(removed)),
            folder=folder,
            quality=quality,
            speed=compare_speed([self.model, smaller]),
            samples=self.samples.assign(after=pd.Series(later, dtype=object)),
            masked=masked,
            scores=after,
        )

    def _recovered(self, smaller: Model, progress: Progress) -> tuple[Model, str]:
        """The smaller model, trained further on request, and how it was trained."""
        if self.recover is None or self.objective is None:
            return smaller, _UNTRAINED
        first = quality(smaller, self.scored_on, frozenset(), self.metric, options=self.options)
        progress.advance(1)
        updates, rate = self.recover.updates, self.recover.rate
        trained = trained_on(smaller, self.trained_on, self.objective, updates, rate, self.seed)
        progress.advance(1)
        return trained, (
            f"After removal the {first['metric']} was {first['scores'][0]:.4f}; then the model was trained further for "
            f"{updates:,} updates on {len(self.trained_on):,} sentences, at a rate of at most {rate:g}."
        )


def _check_numbers(model: Model, keep: Sequence[int], kinds: Sequence[str] | None) -> None:
    if lacking := model.anatomy.lacks():
        raise UserError(f"{model.name} has no heads to remove: {lacking}.")
    total = len(all_heads(model.anatomy))
    least = total - len(gated_heads(model, kinds))
    for one in keep:
        if not least <= one <= total:
            fixed = f" ({least} heads of other kinds stay)" if least else ""
            raise UserError(f"--keep must lie between {least} and the number of heads, {total}{fixed}. Got {one}.")
        if one == total:
            raise UserError(f"{model.name} has {total} heads: there is nothing to remove. Lower --keep.")


def _scores(model: Model, corpus: Corpus, metric: str | SentenceFunction, options: PassOptions | None) -> list[dict]:
    """Scores by the metric, and by BLEU on the first sentences for a translation model."""
    wanted = [(metric, corpus)]
    if _translates(model, corpus):
        wanted.append(("bleu", corpus.select(list(range(min(len(corpus), _BLEU_SENTENCES))))))
    scores = []
    with current_display().progress(f"scoring {model.name}", len(wanted)) as progress:
        for one, texts in wanted:
            scores.append(quality(model, texts, frozenset(), one, options=options))
            progress.advance(1)
    return scores


def _translates(model: Model, corpus: Corpus) -> bool:
    return model.task == "seq2seq" and model.tokenizer is not None and "translation" in corpus.columns


def _samples(model: Model, corpus: Corpus) -> pd.DataFrame:
    columns = ["source", "reference", "before"]
    if not _translates(model, corpus):
        return pd.DataFrame(columns=columns)
    few = list(corpus.select(list(range(min(len(corpus), _SAMPLES)))))
    texts = [one.text for one in few]
    rows = zip(texts, [one.translation for one in few], translate(model, texts), strict=True)
    return pd.DataFrame(list(rows), columns=columns)


def _whole_groups(model: Model, ranked: list[Head], num: int) -> list[Head]:
    """The first `num` heads of a ranking in which heads of a group are adjacent."""
    sizes = group_sizes(model)
    groups = [(*head[:3], head[3] // sizes[head[:3]]) for head in ranked]
    if num < len(groups) and groups[num - 1] == groups[num]:
        first = groups.index(groups[num])
        fewer, more = (len(all_heads(model.anatomy)) - n for n in (first + groups.count(groups[num]), first))
        raise UserError(
            f"Heads of {model.name} share keys and values in groups of {groups.count(groups[num])}, which can only be "
            f"removed together: use --keep {fewer} or {more}. Got {len(all_heads(model.anatomy)) - num}."
        )
    return ranked[:num]


def _change(before: dict, after: dict) -> pd.DataFrame:
    change = after["scores"] - before["scores"]
    low, high = block_interval(float(change[0]), block_effects(float(change[0]), change[1:]))
    row = [before["metric"], before["scores"][0], after["scores"][0], change[0], low, high, before["count"]]
    return pd.DataFrame([row], columns=["metric", "before", "after", "change", "low", "high", "sentences"])


def _card(name: str, by: str, heads: tuple[int, int, int], quality: pd.DataFrame, training: str) -> dict[str, Any]:
    """Contents of the model card; `heads` are the numbers of heads after pruning, before it, and of removable ones."""
    left, total, can_go = heads
    rows = [
        f"| {r['metric']} | {r['before']:.4f} | {r['after']:.4f} | {_change_of(r)} | {r['sentences']:,} |"
        for r in quality.to_dict("records")
    ]
    return {
        "title": f"{name} with {left} of {total} attention heads",
        "text": f"Made by `infoflow prune` from {in_markdown(name)}: heads were ranked by {by}, and the last "
        f"{total - left} of the {can_go} removable ones were removed. {training}",
        "tags": ["pruned"],
        "results": [
            {
                "data": "sentences that were not used for ranking",
                "metric": row["metric"],
                "value": row["after"],
                "note": f"change by pruning {_change_of(row)}",
            }
            for row in quality.to_dict("records")
        ],
        "scores": [
            "On sentences that were not used for ranking; the interval resamples sentences.",
            "",
            "| metric | before | after | change [95% interval] | sentences |",
            "|---|---|---|---|---|",
            *rows,
        ],
    }


def _change_of(row: dict) -> str:
    return f"{row['change']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"
