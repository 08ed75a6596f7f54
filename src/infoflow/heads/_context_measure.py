"""How much a model depends on context: its loss when each position of some blocks attends only to itself."""

# V variant (or token of the vocabulary), B sentence (of all variants), T query token, S key token

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import NO_LABEL, Intervention, PassOptions, Reader
from infoflow.foundation import UserError, as_written
from infoflow.models import AttentionCall, Model, tap
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._ablation_scores import VariantScores, bleu_sums, bleu_variants, summed_losses
from ._head_sets import Block, BlockSet
from ._scored import ScoredBatch, SentenceScorer, no_loss, run_variants

# For losses, blocks below the lowest closed block run only once. "Upper k" and "block b alone" are 2L − 1 sets for L
# blocks. With L encoder and D decoder blocks, closing those of the encoder takes L(L + 1) − 1 + (2L − 1) D runs of a
# block, and closing those of the decoder D(D + 1) − 1. With six and six, these are 107 and 41 runs, where whole passes
# take 132 each. A language model of six blocks takes 41 runs instead of 66.


@contextmanager
def closed_attention(model: Model, blocks: Iterable[Sequence[str | int]]) -> Iterator[None]:
    r"""Close the self-attention of some blocks: inside the `with` block, each of their positions sees only itself.

    $$ a_{qk} = [q = k] \quad\Rightarrow\quad \mathrm{ctx}_q = v_q $$

    A head's output at a token is the token's own value, so queries and keys have no effect, and the token's state in
    the block depends on no other token. Special tokens are closed too; cross-attention stays open. You can also train
    inside the `with` block; dropout of attention weights then applies to this single weight.

    Args:
        model: A loaded model; all calls of its module inside the `with` block are closed, generation too.
        blocks: (stack, layer) of each block, layers from 0; if empty, the model is unchanged.

    Raises:
        UserError: The model has no such block, or no self-attention there.

    >>> ids = torch.tensor([[5, 6, 7, 8], [5, 9, 7, 4]])
    >>> with torch.no_grad(), closed_attention(model, [("encoder", 0), ("encoder", 1)]):
    ...     logits = model.module(ids).logits
    >>> bool(torch.allclose(logits[0, [0, 2]], logits[1, [0, 2]]))  # the same tokens among other ones
    True
    """
    with tap(model, on_attention=ClosedEdit([block_set(model, blocks)])):
        yield


class ClosedEdit:
    """Closes attention calls, with a different set of blocks in each of V variants of the batch.

    The model runs on the batch repeated V times (`x.repeat(V, 1)`).
    """

    def __init__(self, variants: Sequence[BlockSet]) -> None:
        self._variants = list(variants)

    def __call__(self, call: AttentionCall) -> AttentionCall | None:
        closed_V = [(call.stack, call.layer) in blocks for blocks in self._variants]
        if call.kind != "self" or not any(closed_V):
            return None
        weights = call.weights
        closed_B = torch.tensor(closed_V).repeat_interleave(len(weights) // len(closed_V)).to(weights.device)
        queries, keys = weights.shape[2:]
        # With a key-value cache the queries are the last of the keys.
        own_TS = torch.eye(keys, device=weights.device, dtype=weights.dtype)[keys - queries :]
        # torch.where rather than the diagonal alone, so that queries and keys stay in the graph, with gradients of 0.
        return call.edited(weights=torch.where(closed_B[:, None, None, None], own_TS, weights))


def self_attention_blocks(model: Model) -> dict[str, list[Block]]:
    """The blocks with self-attention, lowest first, by kind: "encoder-self", "decoder-self"."""
    found: dict[str, list[Block]] = {}
    for one in model.anatomy.attentions():
        if one.kind == "self":
            found.setdefault(f"{one.stack}-self", []).append((one.stack, one.layer))
    return found


def block_set(model: Model, blocks: Iterable[Sequence[Any]]) -> BlockSet:
    """Check the blocks, and return them as a set."""
    known = {block for own in self_attention_blocks(model).values() for block in own}
    chosen = [tuple(block) for block in blocks]
    if strange := [block for block in chosen if block not in known]:
        last = {stack: max(layer for name, layer in known if name == stack) for stack, _ in sorted(known)}
        there = ", ".join(f"({as_written(stack)}, 0..{layer})" for stack, layer in last.items())
        raise UserError(
            f"blocks must be blocks of {model.name} with self-attention, each as (stack, layer): {there or 'none'}. "
            f"Got {as_written(list(strange[0]))}. Layers count from 0."
        )
    return frozenset(chosen)


_TOGETHER = 2  # an upper set and one block alone start at the same block


def closed_scores(
    scorer: SentenceScorer, rows: np.ndarray, closings: Sequence[BlockSet], options: PassOptions | None = None
) -> VariantScores:
    """Losses of the sentences `rows`, in nats per predicted token.

    The first losses are those of the intact model; then come the losses with each set of closed blocks, and those from
    unigram frequencies (`unigram_losses`).
    """
    frequencies_V = unigram_losses(scorer.reader)

    model = scorer.model

    def edits(part: list[int]) -> dict[str, Any]:
        return {"on_attention": ClosedEdit([closings[index] for index in part])}

    def losses(batch: ScoredBatch) -> tuple[Tensor, Tensor]:
        # Open attention uses the same code as closed attention, so that they differ only in what is closed.
        is_open = tap(model, on_attention=lambda call: None)
        open_B, closed_VB = run_variants(scorer, batch, closings, _TOGETHER, edits, intact=is_open, keep_heads=False)
        return open_B, torch.cat([closed_VB, sentence_sums(frequencies_V, batch)[None]])

    budget = max(1, (options or PassOptions()).tokens_per_batch // _TOGETHER)
    label = f"Closing attention of {model.name}"
    return summed_losses(scorer, rows, 2 + len(closings), losses, budget=budget, label=label)


def unigram_losses(reader: Reader) -> Float[Tensor, " vocabulary"]:
    r"""$-\log p$ of each token that the model may have to predict, from its frequency, in nats (float64).

    $$ p(w) = \frac{n_w + 1}{\sum_v (n_v + 1)} $$

    Counts come from the model's training text if it is known, otherwise from the measured corpus (`Reader.counted`). A
    causal LM and a decoder also predict the end of a sentence, but never its first special token; a masked LM predicts
    no special token.
    """
    stack = reader.model.anatomy.predicts.name
    rows = reader.counted_rows(stack)
    tokens, special = np.asarray(rows.flat_ids), np.asarray(rows.flat_special)
    if reader.model.task == "masked-lm":
        predicted = ~special
    else:
        begins = np.asarray(rows.offsets)[:-1][rows.lengths > 0]
        predicted = np.ones(len(tokens), dtype=bool)
        predicted[begins] = ~special[begins]
    size = max(len(reader.tokenizer(stack)), int(tokens.max(initial=-1)) + 1)
    counts = np.bincount(tokens[predicted], minlength=size).astype(np.float64)
    return torch.from_numpy(np.log(counts.sum() + size) - np.log(counts + 1))


def sentence_sums(losses_V: Float[Tensor, " vocabulary"], batch: ScoredBatch) -> Float[Tensor, " sentence"]:
    """Each sentence's sum of `losses_V` over its predicted tokens."""
    labels = batch.labels.cpu()
    scored = labels != NO_LABEL
    return torch.where(scored, losses_V[labels.clamp(min=0)], 0.0).sum(dim=1)


ENCODER_CONTEXT = TableSchema(
    name="encoder_context",
    description="How the model's score changes when the self-attention of blocks is closed, so that each position sees "
    "only itself. The sentences are the same open and closed, so differences are paired.",
    made_by="infoflow study on the run's folder makes it, without training again",
    columns=(
        Column("kind", "string", "", "closed attention: encoder-self or decoder-self; empty if none is closed"),
        Column(
            "which",
            "string",
            "",
            "all: every block; upper: the highest `number` blocks; block: only block `number`, counted from 0; "
            "none: nothing is closed, the control for `retrained`",
        ),
        Column("number", "int64", "blocks", "see `which`; for all: the number of blocks"),
        Column(
            "retrained",
            "int64",
            "updates",
            "updates of further training with these blocks closed; the model is compared with one trained further for "
            "as long with all blocks open; for none: that open model, compared with the model before further training; "
            "0: no further training",
        ),
        Column(
            "metric",
            "string",
            "",
            "loss; share: the change of the loss as a share of what the model has learned beyond unigram frequencies, "
            "the unigram loss minus the model's loss (no row unless this is above 0); bleu: of greedy translations "
            "(sacreBLEU, lower-cased; tokenizer 13a, or zh or char for scripts without spaces)",
        ),
        *estimate_columns(
            "nats per token (loss), share, percent (bleu)",
            "score with the blocks closed minus score with all open",
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
        """The control: no block is closed."""
        return cls(kind="", which="none", number=0, blocks=frozenset())


def closings_of(model: Model, kind: str) -> list[Closing]:
    """For one kind: all blocks, the upper k for each k, and each block alone."""
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
    r"""The rise in loss with self-attention closed, and its share of what the model learned beyond unigram frequencies.

    $$ \Delta = L_\text{closed} - L, \qquad \mathrm{share} = \frac{\Delta}{L_\text{unigram} - L} $$

    | symbol             | here                                                       | unit                     |
    |--------------------|------------------------------------------------------------|--------------------------|
    | $L$                | the task's loss, all attention open                        | nats per predicted token |
    | $L_\text{closed}$  | the same tokens with blocks closed, see `closed_attention` | nats per predicted token |
    | $L_\text{unigram}$ | the loss from frequencies alone, see `unigram_losses`      | nats per predicted token |

    For each kind of self-attention, this closes all blocks, the upper k for every k, and each block alone. Closing at
    test time shows what the model uses; only further training with closed blocks shows what it could do without (a
    study's `[context]`). If the model's training frequencies are not known, the unigram loss uses those of the corpus.

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
        return no_loss(model) or model.anatomy.outside_attention()

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        model = reader.model
        closings = [closing for kind in self_attention_blocks(model) for closing in closings_of(model, kind)]
        return context_rows(context_scores(reader, closings, self.sentences, options), closings)


def context_scores(
    reader: Reader, closings: Sequence[Closing], sentences: int | None, options: PassOptions | None = None
) -> VariantScores:
    """Losses of sentences chosen by hash: with open attention, with each `Closing`, and from unigram frequencies.

    Sentences and masking noise are the same for every model on a corpus, so that differences between models are paired.
    """
    scorer = SentenceScorer(reader)
    rows = scorer.choose(sentences, "encoder-context")
    different = list(dict.fromkeys(closing.blocks for closing in closings))
    found = closed_scores(scorer, rows, different, options)
    places = [0, *(1 + different.index(closing.blocks) for closing in closings), len(different) + 1]
    return found.at(places)


def context_bleu(model: Model, corpus: Corpus, closings: Sequence[Closing]) -> VariantScores:
    """BLEU of greedy translations of the whole corpus: with open attention, then with each closing."""
    parts, signature = [], ""
    for closing in (Closing.none(), *closings):
        with closed_attention(model, sorted(closing.blocks)):
            found, signature = bleu_sums(model, corpus, 1)
        parts.append(found)
    return bleu_variants(parts, len(corpus), signature)


def context_rows(scores: VariantScores, closings: Sequence[Closing], retrained: int = 0) -> pd.DataFrame:
    """Rows of the table `encoder_context`; `scores`: with open attention, each closing and, for losses, unigrams."""
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
