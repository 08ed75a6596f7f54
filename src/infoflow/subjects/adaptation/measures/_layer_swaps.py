"""Tuned layers reset to their pretrained weights: what the task loses, and what pretraining regains."""

# K bootstrap block (64), L blocks of all stacks

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS
from infoflow.heads import SentenceScorer, loss_scores, no_loss
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.results import ratio_estimate, scale_of

from ._body import BodyGroup, began_as, body_groups, body_parameters, with_weights
from ._scoring import Score
from ._states import mean_estimate, without_tuned
from ._tables import LAYER_SWAPS
from ._task import AbstractTask, TaskData
from ._task_parts import TaskPart

Rewound = Literal["none", "lower", "upper", "one", "all"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Swap:
    """Which blocks get their weights from before tuning; encoder blocks come before decoder blocks."""

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

    With `rewound` "lower" the embeddings and the first blocks are reset, with "upper" the last blocks and the norm
    above them, with "one" a single block (each in turn), with "all" the whole body; the rest is tuned. "lower" with 0
    blocks resets only the embeddings, "upper" with 0 only the norm, if there is one. Compare the other rows with these,
    since an output matrix that is tied to the embeddings is reset with them. The score is that of the tuned head on
    that body.
    The pretraining loss is that of the pretrained head on the body, in nats per predicted token; an output matrix tied
    to the embeddings stays tied. Baselines: for the score, the whole pretrained body under the tuned head; for the
    loss, the pretrained model. The models are unchanged afterwards.

    Args:
        before: The pretrained model.
        after: The models tuned from it.
        task: The task that they were tuned on.
        data: Its parts; the score is on `test`.
        options: Seed, maximum length, batch size, noise of the pretraining objective.
        pretraining: Text for the pretraining loss; without text or without a language-model head, this loss is left
            out.
        examples: At most this many of `test`, chosen by hash.
        sentences: At most this many of `pretraining`.
        points: Maximum numbers of lower and of upper blocks to try between none and all.

    Raises:
        UserError: The models have different bodies.
    """
    options = options or PassOptions()
    start = began_as(before, after)
    part = TaskPart(task, data.test, start, options, most=examples)
    text = _PretrainingText.of(before, pretraining, options, sentences)
    rows = []
    for swap in swaps(start, points):
        scores, losses = [], []
        for one in after:
            with with_weights(one, _taken(start, swap, from_before=True)):
                scores.append(part_score(one, part, data.train))
            if text is not None:
                with with_weights(start, _taken(one, swap, from_before=False)):
                    losses.append(text.loss())
        named = asdict(swap)
        rows.append({**named, "quantity": "score", **mean_score(scores)})
        if text is not None:
            sums, counts = np.mean([each[0] for each in losses], axis=0), losses[0][1]
            rows.append({**named, "quantity": "pretraining-loss", **ratio_estimate(sums, counts, float("nan"))})
    schema = without_tuned(LAYER_SWAPS)
    return schema.conform(_with_baselines(pd.DataFrame(rows, columns=schema.column_names)))


def swaps(model: Model, points: int) -> list[Swap]:
    """The swaps to try: nothing, the parts below and above the blocks, up to `points` numbers of lower and of upper
    blocks, each block alone, and everything.
    """
    blocks = sum(len(stack.layers) for stack in model.anatomy.stacks)
    between = np.unique(np.linspace(1, blocks - 1, min(points, blocks - 1)).round().astype(int)) if blocks > 1 else []
    inner = [Swap(rewound=side, blocks=int(num)) for side in ("lower", "upper") for num in (0, *between)]
    inner = [swap for swap in inner if rewound_names(model, swap)]
    single = [Swap(rewound="one", blocks=1, layer=layer) for layer in range(blocks)]
    return [Swap(rewound="none", blocks=0), *inner, *single, Swap(rewound="all", blocks=blocks)]


def rewound_names(model: Model, swap: Swap) -> set[str]:
    """Names of the body's parameters that are reset."""
    first = {stack.name: sum(len(one.layers) for one in model.anatomy.stacks[:place])
             for place, stack in enumerate(model.anatomy.stacks)}  # fmt: skip
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
    """Parameters to copy from this model to the other: the reset ones, or all others."""
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _PretrainingText:
    """Sentences for the pretraining loss, with noise that is the same for all bodies."""

    scorer: SentenceScorer
    rows: np.ndarray
    options: PassOptions

    @classmethod
    def of(cls, model: Model, corpus: Corpus | None, options: PassOptions, sentences: int) -> "_PretrainingText | None":
        """None if there is no text, no head, or nothing for a decoder to write."""
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
        return cls(scorer=scorer, rows=scorer.choose(sentences, "layer-swaps"), options=options)

    def loss(self) -> tuple[Float[np.ndarray, " block"], Float[np.ndarray, " block"]]:
        """Summed nats and number of predicted tokens in each bootstrap block, with the model's current weights."""
        sums = loss_scores(self.scorer, self.rows, [], options=self.options).sums_VKS[0]
        assert sums.shape == (NUM_BLOCKS, 2)
        return sums[:, 0], sums[:, 1]


def no_pretraining_loss(model: Model, corpus: Corpus, trained: AbstractObjective | None) -> str | None:
    """Why the pretraining loss cannot be computed on this text, or None.

    `trained`: the pretraining objective, if known.
    """
    reason = no_loss(model)
    if reason or model.task != "seq2seq":
        return reason
    if trained is not None and _is_of_one_text(trained):
        return None if trained.writes == "text" else f"its decoder was trained on parts of texts ({trained.name})"
    if "translation" not in corpus.columns:
        return f"its decoder needs translations, and {corpus.name} has none"
    return None


def _is_of_one_text(trained: AbstractObjective | None) -> bool:
    """Whether encoder and decoder share one language, as opposed to translation."""
    return trained is not None and trained.layout == "encoder-decoder" and not trained.needs_translation


def _with_baselines(frame: pd.DataFrame) -> pd.DataFrame:
    """Adds the value of the model before tuning to every row of the same quantity."""
    whole = frame[frame["rewound"] == "all"].set_index("quantity")["value"]
    return frame.assign(baseline=frame["quantity"].map(whole))
