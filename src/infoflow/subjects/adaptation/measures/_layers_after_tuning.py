"""How far tuning moved each layer and its weights, and what is lost if tuned layers are reset."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, Reader
from infoflow.foundation import UserError, current_display
from infoflow.heads import SentenceScorer, loss_scores, no_loss
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.representations import (
    BlockGroups,
    ItemPairs,
    LayerPair,
    LayerSpace,
    RankedSpace,
    centred_ranks,
    space_values,
    warn_few_rows,
)
from infoflow.results import estimate, ratio_estimate, scale_of

from ._body import BodyGroup, began_as, body_groups, body_parameters, with_weights
from ._scoring import Score
from ._states import Places, mean_estimate, tuned_table
from ._tables import LAYER_SWAPS, TUNING_CHANGE, TUNING_WEIGHTS
from ._task import AbstractTask, TaskData
from ._task_parts import TaskPart

# K bootstrap block (64), L blocks of all stacks

Rewound = Literal["none", "lower", "upper", "one", "all"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Swap:
    """Which blocks are reset to their weights before tuning; encoder blocks come before decoder blocks."""

    rewound: Rewound
    blocks: int
    layer: int = -1  # for "one": which block, from 0


def layer_swaps(
    before: Model,
    after: Sequence[Model],
    task: AbstractTask,
    data: TaskData,
    options: PassOptions | None = None,
    *,
    pretraining: Corpus | None = None,
    examples: int = 300,
    sentences: int = 128,
    points: int = 6,
) -> pd.DataFrame:
    """The table `LAYER_SWAPS` without the columns of `TUNED`: numbers are means over seeds.

    `rewound` says what is reset while the rest stays tuned: "lower", the embeddings and the first blocks; "upper", the
    last blocks and the norm above them; "one", a single block (each in turn); "all", the whole body. "lower" with 0
    blocks resets only the embeddings, and "upper" with 0 only the norm, if there is one; compare the other rows with
    these two, since resetting the embeddings also resets a tied output matrix. Between none and all, up to `points`
    different numbers of lower and of upper blocks are tried. The score is that of the tuned head on the resulting body,
    on `test`. The pretraining loss is that of the pretrained head on this body, in nats per predicted token; it is left
    out without text or such a head. Baselines: for the score, the tuned head on the pretrained body; for the loss, the
    pretrained model. The models are unchanged afterwards.
    """
    options = options or PassOptions()
    start = began_as(before, after)
    part = TaskPart(task, data.test, start, options, most=examples)
    loss = _pretraining_loss(before, pretraining, options, sentences)
    rows = []
    for swap in swaps(start, points):
        scores, losses = [], []
        for one in after:
            with with_weights(one, _taken(start, swap, from_before=True)):
                scores.append(part_score(one, part, data.train))
            if loss is not None:
                with with_weights(start, _taken(one, swap, from_before=False)):
                    losses.append(loss())
        named = asdict(swap)
        rows.append({**named, "quantity": "score", **mean_score(scores)})
        if losses:
            sums, counts = np.mean([each[:, 0] for each in losses], axis=0), losses[0][:, 1]
            rows.append({**named, "quantity": "pretraining-loss", **ratio_estimate(sums, counts, float("nan"))})
    frame = pd.DataFrame(rows)
    whole = frame[frame["rewound"] == "all"].set_index("quantity")["value"]
    return tuned_table(LAYER_SWAPS, frame.assign(baseline=frame["quantity"].map(whole)))


def swaps(model: Model, points: int) -> list[Swap]:
    """The swaps to try: nothing, the parts below and above the blocks, up to `points` different numbers of lower and
    of upper blocks, each block alone, and everything.
    """
    blocks = sum(len(stack.layers) for stack in model.anatomy.stacks)
    between = np.unique(np.linspace(1, blocks - 1, min(points, blocks - 1)).round().astype(int)) if blocks > 1 else []
    inner = [Swap(rewound=side, blocks=int(num)) for side in ("lower", "upper") for num in (0, *between)]
    inner = [swap for swap in inner if rewound_names(model, swap)]
    single = [Swap(rewound="one", blocks=1, layer=layer) for layer in range(blocks)]
    return [Swap(rewound="none", blocks=0), *inner, *single, Swap(rewound="all", blocks=blocks)]


def rewound_names(model: Model, swap: Swap) -> set[str]:
    """Names of the body's parameters that are reset."""
    first = {stack.name: sum(len(one.layers) for one in model.anatomy.stacks[:index])
             for index, stack in enumerate(model.anatomy.stacks)}  # fmt: skip
    blocks = sum(len(stack.layers) for stack in model.anatomy.stacks)

    def is_rewound(one: BodyGroup) -> bool:
        if swap.rewound in ("none", "all"):
            return swap.rewound == "all"
        if one.layer < 0:
            return swap.rewound != "one" and one.of_embeddings == (swap.rewound == "lower")
        place = first[one.group.stack or model.anatomy.stacks[0].name] + one.layer
        if swap.rewound == "one":
            return place == swap.layer
        return place < swap.blocks if swap.rewound == "lower" else place >= blocks - swap.blocks

    return {one.name for one in body_groups(model) if is_rewound(one)}


def _taken(model: Model, swap: Swap, from_before: bool) -> dict[str, Tensor]:
    """Parameters to copy from this model into the other: the reset ones (`from_before`), or all others."""
    rewound = rewound_names(model, swap)
    return {
        name: parameter.detach()
        for name, parameter in body_parameters(model).items()
        if (name in rewound) == from_before
    }


def part_score(model: Model, part: TaskPart, train: Corpus) -> Score:
    """The task's main metric on a part."""
    task = part.task
    said = task.predict(model.module, part.rows, part.corpus, part.vocabulary, part.options.tokens_per_batch)
    return task.scores(said, part.corpus, train)[0]


def mean_score(scores: Sequence[Score], baseline: float | None = None) -> dict[str, Any]:
    """The estimate columns of the mean of one metric over models, within the metric's range."""
    return mean_estimate([one.row for one in scores], scale_of(scores[0].metric), baseline)


def _pretraining_loss(
    model: Model, corpus: Corpus | None, options: PassOptions, sentences: int
) -> Callable[[], Float[np.ndarray, "block 2"]] | None:
    """The summed nats and number of predicted tokens in each bootstrap block, with the model's current weights.

    The noise is the same for all weights. None if there is no text, no head, or nothing for a decoder to generate.
    """
    if corpus is None or no_pretraining_loss(model, corpus, options.corruption):
        return None
    reader = Reader(
        model,
        corpus,
        max_length=options.max_length,
        seed=options.seed,
        decoder=model.task == "seq2seq",
        corruption=options.corruption,
        decoder_side="text" if _is_of_one_text(options.corruption) else "translation",
    )
    scorer = SentenceScorer(reader)
    rows = scorer.choose(sentences, "layer-swaps")
    return lambda: loss_scores(scorer, rows, [], options=options).sums_VKS[0]


def no_pretraining_loss(model: Model, corpus: Corpus, trained: AbstractObjective | None) -> str | None:
    """Why the pretraining loss (of the objective `trained`, if known) cannot be computed on this text, or None."""
    reason = no_loss(model)
    if reason or model.task != "seq2seq":
        return reason
    if trained is not None and _is_of_one_text(trained):
        return None if trained.writes == "text" else f"its decoder was trained on parts of texts ({trained.name})"
    if "translation" not in corpus.columns:
        return f"its decoder needs translations, and {corpus.name} has none"
    return None


def _is_of_one_text(trained: AbstractObjective | None) -> bool:
    """Whether the objective has an encoder and a decoder for one language, unlike translation."""
    return trained is not None and trained.layout == "encoder-decoder" and not trained.needs_translation


# How far tuning moved each layer's representations.
# leave_out: first all words, then all except those of each group of bootstrap blocks

_SPACES = {"pwcca": "pwcca", "cka": "cka_debiased"}  # names in SpaceSimilarity
_LEAST_WORDS = 4  # the debiased CKA divides by this minus 3
_LEAST_FOR_PWCCA = 2  # words per dimension: below that, any two spaces share directions


def tuning_change(places: Places, before: Model, after: Sequence[Model], items: int) -> pd.DataFrame:
    r"""The table `TUNING_CHANGE` without the columns of `TUNED`.

    $$ d_l = 1 - \frac{1}{S} \sum_s \mathrm{sim}(X_l, Y^s_l), \qquad
        \mathrm{baseline}_l = 1 - \binom{S}{2}^{-1} \sum_{s < u} \mathrm{sim}(Y^s_l, Y^u_l) $$

    X are the states of some words of the examples before tuning, Y those after tuning with seed s; sim is PWCCA,
    debiased linear CKA, or the rank correlation of the cosine distances between words (RSA, of `items` of the words).
    All models read the task's input (pairs as pairs), and the same words. The effect of tuning is the distance beyond
    the baseline, which is the distance between seeds (NaN with one seed). Intervals leave out sentences, as
    `SpaceSimilarity` does. PWCCA needs ten words per dimension, preferably twenty; with fewer, it is biased towards
    similarity, which a warning reports, and with two or fewer it is left out.

    Source: [@morcos2018], [@kornblith2019], [@kriegeskorte2008]; comparison of tuned and pretrained models:
    [@merchant2020].
    """
    rows = []
    for stack, first in places.states(before).words.items():
        if len(first) < _LEAST_WORDS:
            raise UserError(
                f"Similarity of spaces needs at least {_LEAST_WORDS} words. The {stack} reads {len(first)} in "
                f"{places.part.corpus.name}: use more examples."
            )
        measures = _measures(len(first), first.shape[-1])
        others = [places.states(one).words[stack] for one in after]
        for layer in range(first.shape[1]):
            states = [first[:, layer], *(other[:, layer] for other in others)]
            found = _distances(states, places.blocks[stack], items, measures)
            rows += [{"stack": stack, "layer": layer, **row} for row in found]
    return tuned_table(TUNING_CHANGE, rows)


def _measures(words: int, width: int) -> dict[str, str]:
    """The similarity measures that this many words support."""
    if words > _LEAST_FOR_PWCCA * width:
        warn_few_rows(words, width)
        return _SPACES
    current_display().warn(
        f"PWCCA before and after tuning is left out, since it needs more than {_LEAST_FOR_PWCCA * width} words for "
        f"{width} dimensions. Got {words}. Use more examples."
    )
    return {name: metric for name, metric in _SPACES.items() if name != "pwcca"}


def _distances(
    states: Sequence[Float[np.ndarray, "word width"]], blocks: np.ndarray, items: int, measures: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Rows of one layer; `states` are those before tuning, then those after tuning with each seed."""
    groups = BlockGroups.of(blocks, states[0].shape[1])
    spaces = [LayerSpace(one, groups) for one in states]
    for measure, metric in measures.items():
        values = [space_values(metric, LayerPair.of(spaces[0], one)) for one in spaces[1:]]
        between = [_alone(metric, x, y) for x, y in combinations(spaces[1:], 2)]
        yield {"measure": measure, **_estimate(np.mean(values, axis=0), between, groups)}
    few = np.linspace(0, len(blocks) - 1, min(items, len(blocks))).round().astype(int)
    pairs = ItemPairs(BlockGroups.of(blocks[few], states[0].shape[1]))
    order = few[pairs.groups.order.numpy()]
    ranked = [RankedSpace(centred_ranks(one[order], "cosine"), pairs) for one in states]
    between = [x.correlation(y) for x, y in combinations(ranked[1:], 2)]
    yield {
        "measure": "rsa",
        **_estimate(np.mean([ranked[0].values(one) for one in ranked[1:]], axis=0), between, pairs.groups),
    }


def _alone(metric: str, x: LayerSpace, y: LayerSpace) -> float:
    """The similarity of two spaces over all rows, as one number without replicates."""
    return float(space_values(metric, LayerPair.shuffled(x, y, torch.arange(len(x.squares))))[0])


def _estimate(
    similarities: Float[np.ndarray, " leave_out"], between: Sequence[float], groups: BlockGroups
) -> dict[str, Any]:
    values = 1 - similarities
    baseline = 1 - float(np.mean(between)) if between else float("nan")
    ends = groups.interval(float(values[0]), values)
    return estimate(float(values[0]), groups.replicates(values).round(5), baseline, len(groups.order), ends=ends)


# How far tuning moved the weights of each block and component.


def tuning_weights(before: Model, after: Sequence[Model], seeds: Sequence[int] | None = None) -> pd.DataFrame:
    r"""The table `TUNING_WEIGHTS` without the columns of `TUNED`: one row per component of each block and seed.

    $$ \frac{\lVert θ' - θ \rVert}{\lVert θ \rVert}, \qquad
        \frac{\langle θ', θ \rangle}{\lVert θ' \rVert \lVert θ \rVert} $$

    θ are all weights and biases of the component before tuning, θ' after it. Heads and poolers, which tuning
    initialises, are left out; NaN if all weights are 0.
    """
    rows, start = [], began_as(before, after)
    by_component: dict[tuple[str, int, str], list[BodyGroup]] = {}
    for group in body_groups(start):
        by_component.setdefault((group.group.stack or "", group.layer, group.component), []).append(group)
    for seed, one in zip(range(len(after)) if seeds is None else seeds, after, strict=True):
        weights = [body_parameters(model) for model in (start, one)]
        for (stack, layer, component), members in by_component.items():
            then, now = (_together(members, each) for each in weights)
            norm, moved = float(then.norm()), float((now - then).norm())
            both = norm * float(now.norm())
            rows.append(
                {
                    "tuning_seed": seed,
                    "stack": stack,
                    "layer": layer,
                    "component": component,
                    "parameters": len(then),
                    "relative": moved / norm if norm else float("nan"),
                    "cosine": float(now @ then) / both if both else float("nan"),
                }
            )
    return tuned_table(TUNING_WEIGHTS, rows)


def _together(members: Sequence[BodyGroup], weights: dict[str, torch.nn.Parameter]) -> Tensor:
    """All weights of the members as one vector, float64."""
    parts = [one.group.slice.take(weights[one.name].detach()).flatten() for one in members]
    return torch.cat(parts).double().cpu()
