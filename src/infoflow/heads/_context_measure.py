"""How much a model depends on context: its loss when the self-attention of its blocks is closed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import UserError
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._ablation_scores import VariantScores, bleu_sums, bleu_variants
from ._closed_attention import closed_attention, closed_scores, self_attention_blocks
from ._head_sets import BlockSet
from ._scored import SentenceScorer, no_loss

ENCODER_CONTEXT = TableSchema(
    name="encoder_context",
    version=1,
    description="How the model's score changes when the self-attention of blocks is closed, so that each position sees "
    "only itself. The sentences are the same open and closed, so differences are paired.",
    made_by="infoflow study on the run's folder makes it, without training again",
    columns=(
        Column(
            name="kind",
            dtype="string",
            unit="",
            description="encoder-self or decoder-self: whose blocks are closed; empty where none is",
        ),
        Column(
            name="which",
            dtype="string",
            unit="",
            description="all: every block; upper: the highest `number` of them; block: block `number` alone, from 0; "
            "none: nothing is closed, the control of `retrained`",
        ),
        Column(name="number", dtype="int64", unit="blocks", description="see `which`; of all: how many there are"),
        Column(
            name="retrained",
            dtype="int64",
            unit="updates",
            description="how long the model was trained on with these blocks closed, beside one as long with all open, "
            "which its score is compared with; of none: that one, compared with the model before; 0: not at all",
        ),
        Column(
            name="metric",
            dtype="string",
            unit="",
            description="loss; share: the change of the loss as a share of what the model has learned beyond "
            "frequencies, the unigram loss less its own (no row where that is not above 0); bleu, of greedy "
            "translations (sacreBLEU, lower-cased; tokenizer 13a, or zh or char for scripts without spaces)",
        ),
        *estimate_columns(
            "nats per token (loss), share, percent (bleu)",
            "score closed less score open",
            "loss, bleu: the score with everything open; share: what the model has learned, in nats per token",
            "sentences",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Closing:
    """Blocks that are closed together, with their names in the table."""

    kind: str
    which: str
    number: int
    blocks: BlockSet

    @classmethod
    def none(cls) -> "Closing":
        """Nothing is closed."""
        return cls(kind="", which="none", number=0, blocks=frozenset())


def every_closing(model: Model) -> list[Closing]:
    """All blocks of each kind of self-attention, its upper blocks, and each block alone."""
    return [closing for kind in self_attention_blocks(model) for closing in closings_of(model, kind)]


def closings_of(model: Model, kind: str) -> list[Closing]:
    """For one kind: all blocks, the upper k for each k, and each block alone.

    Raises:
        UserError: The model has no such kind of self-attention.
    """
    found = self_attention_blocks(model)
    if kind not in found:
        raise UserError(f"kind must be among {', '.join(found)} for {model.name}. Got {kind}.")
    blocks, num = found[kind], len(found[kind])
    return [
        Closing(kind=kind, which="all", number=num, blocks=frozenset(blocks)),
        *(Closing(kind=kind, which="upper", number=k, blocks=frozenset(blocks[num - k :])) for k in range(1, num + 1)),
        *(Closing(kind=kind, which="block", number=block[1], blocks=frozenset([block])) for block in blocks),
    ]


class EncoderContext(Intervention):
    r"""The rise in loss with self-attention closed, and its share of what the model learned beyond frequencies.

    $$ \Delta = L_\text{closed} - L, \qquad \mathrm{share} = \frac{\Delta}{L_\text{unigram} - L} $$

    | symbol | here | unit |
    |---|---|---|
    | $L$ | the task's loss, all attention open | nats per predicted token |
    | $L_\text{closed}$ | the same tokens with blocks closed, see `closed_attention` | nats per predicted token |
    | $L_\text{unigram}$ | of frequencies alone, see `unigram_losses` | nats per predicted token |

    For each kind of self-attention: all blocks, the upper k for every k, and each block alone. Closing at test time
    shows what the model uses; what it could do without is shown only by further training with closed blocks (a study's
    `[context]`). If the corpus is not the source of the model's frequencies, the unigram loss is the corpus's own.

    Args:
        sentences: Number of sentences, chosen by hash; None: all.

    Source: ours. [@raganato2020] train translation encoders in which all heads but one attend to fixed positions.
    """

    table: ClassVar[TableSchema] = ENCODER_CONTEXT

    def __init__(self, sentences: int | None = 400) -> None:
        if sentences is not None and sentences < 1:
            raise UserError(f"sentences must be at least 1, or None for all. Got {sentences}.")
        self.sentences = sentences

    def refusal(self, model: Model) -> str | None:
        if not self_attention_blocks(model):
            return "it has no self-attention to close"
        return no_loss(model) or model.anatomy.beside_attention()

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        closings = every_closing(reader.model)
        return context_rows(context_scores(reader, closings, self.sentences, options), closings)


def context_scores(
    reader: Reader, closings: Sequence[Closing], sentences: int | None, options: PassOptions | None = None
) -> VariantScores:
    """Losses of sentences chosen by hash: open, under each `Closing`, and of unigram frequencies.

    Sentences and noise are the same for every model of a corpus, so that differences between models are paired.
    """
    scorer = SentenceScorer(reader)
    rows = scorer.choose(sentences, "encoder-context")
    different = list(dict.fromkeys(closing.blocks for closing in closings))
    found = closed_scores(scorer, rows, different, options)
    places = [0, *(1 + different.index(closing.blocks) for closing in closings), len(different) + 1]
    return found.at(places)


def context_bleu(model: Model, corpus: Corpus, closings: Sequence[Closing]) -> VariantScores:
    """BLEU of greedy translations of the whole corpus: open, then under each closing.

    Raises:
        UserError: The model does not translate, or the corpus has no translations.
    """
    parts, signature = [], ""
    for closing in (Closing.none(), *closings):
        with closed_attention(model, sorted(closing.blocks)):
            found, signature = bleu_sums(model, corpus, 1)
        parts.append(found)
    return bleu_variants(parts, len(corpus), signature)


def context_rows(scores: VariantScores, closings: Sequence[Closing], retrained: int = 0) -> pd.DataFrame:
    """Rows of the table `encoder_context`; `scores`: open, under each closing, and, for losses, of frequencies."""
    values_VR = scores.scores()
    learned_R = values_VR[-1] - values_VR[0] if scores.metric == "loss" else None
    rows = []
    for closing, own_R in zip(closings, values_VR[1 : 1 + len(closings)], strict=True):
        keys = {"kind": closing.kind, "which": closing.which, "number": closing.number, "retrained": retrained}
        rows += [{**keys, **row} for row in _numbers(scores, own_R - values_VR[0], values_VR[0], learned_R)]
    return ENCODER_CONTEXT.conform(pd.DataFrame(rows, columns=ENCODER_CONTEXT.column_names))


def _numbers(
    scores: VariantScores, change_R: np.ndarray, open_R: np.ndarray, learned_R: np.ndarray | None
) -> Iterator[dict[str, Any]]:
    """The change of the score, and, for a loss, its share of what was learned."""
    count = scores.num_sentences
    yield {"metric": scores.metric, **estimate(float(change_R[0]), change_R[1:], float(open_R[0]), count)}
    if learned_R is None or not learned_R[0] > 0:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        share_R = change_R / learned_R
    yield {"metric": "share", **estimate(float(share_R[0]), share_R[1:], float(learned_R[0]), count)}
