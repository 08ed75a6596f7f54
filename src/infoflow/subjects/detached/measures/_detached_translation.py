"""How well scores separate translations that are detached from their source from faithful translations."""

# T target position, S source token, L decoder layer, N translation, K score

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from sacrebleu.metrics.chrf import CHRF
from torch import Tensor

from infoflow.flow import NO_LABEL, Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, block_effects, block_interval, block_of, current_display, stream
from infoflow.heads import Place, SentenceScorer, alti_contributions
from infoflow.models import Model, as_model_writes, decoder_inputs, forward_logits, translate
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates


def source_shares(mixing: Mapping[Place, Float[Tensor, "query key"]]) -> Float[Tensor, "layer position"]:
    r"""The share of the source in each target position's state after every decoder layer, by ALTI+.

    $$ r \leftarrow A_l\, r, \qquad r_j \leftarrow (1 - c_{lj})\, r_j + c_{lj}, \qquad c_{lj} = \sum_i C_{l,ji} $$

    $A_l$ is the map of layer l's self-attention and $C_l$ that of its cross-attention, whose rows sum to 1 minus the
    share of the residual. Rows of the encoder's maps sum to 1, so that the encoder only distributes the share over
    source tokens.

    Args:
        mixing: One sentence's maps, from `alti_contributions`.

    Source: [@ferrando2022plus].
    """
    layers = sorted(layer for stack, kind, layer in mixing if (stack, kind) == ("decoder", "cross"))
    share_T = torch.zeros(mixing["decoder", "cross", layers[0]].shape[0], dtype=torch.float64)
    found = []
    for layer in layers:
        across_T = mixing["decoder", "cross", layer].double().cpu().sum(1)
        share_T = mixing["decoder", "self", layer].double().cpu() @ share_T
        share_T = (1 - across_T) * share_T + across_T
        found.append(share_T)
    return torch.stack(found)


class Detection(NamedTuple):
    """The AUC of a score that should be low for detached translations, and the AUC without each block of sentences."""

    value: float
    without_block: Float[np.ndarray, " block"]

    @property
    def replicates(self) -> np.ndarray:
        return linear_replicates(self.value, self.without_block)

    @classmethod
    def of(
        cls,
        low: Float[np.ndarray, " detached"],
        high: Float[np.ndarray, " faithful"],
        low_blocks: Int[np.ndarray, " detached"],
        high_blocks: Int[np.ndarray, " faithful"],
    ) -> "Detection":
        r"""$P(s_- < s_+) + \tfrac12 P(s_- = s_+)$ for scores $s_-$ of detached and $s_+$ of faithful translations."""
        wins = (low[:, None] < high) + 0.5 * (low[:, None] == high)
        of_low, of_high = (np.eye(NUM_BLOCKS)[blocks] for blocks in (low_blocks, high_blocks))
        won, pairs = of_low.T @ wins @ of_high, np.outer(of_low.sum(0), of_high.sum(0))
        left = [every.sum() - every.sum(0) - every.sum(1) + np.diag(every) for every in (won, pairs)]
        with np.errstate(invalid="ignore", divide="ignore"):
            without = np.where(left[1] > 0, left[0] / left[1], np.nan)
        return cls(float(wins.mean()), without)


SWAPPED, EMPTIED, REPLACED, WORST = "swapped", "emptied", "replaced", "worst"
KINDS = (SWAPPED, EMPTIED, REPLACED, WORST)
SOURCE_SHARE, LOG_PROBABILITY, RANDOM = "source_share", "log_probability", "random"
NO_LAYER = 0
_LEAST = 10  # sentences

DETACHED_TRANSLATION = TableSchema(
    name="detached_translation",
    version=1,
    description="How well a score shows that a translation is detached from its source: the probability that a "
    "detached translation has a lower score than a faithful one. Faithful: the corpus's pairs; detached: the same "
    "translations with another source. The kind `worst` compares the fifth of the model's own greedy translations "
    "with the lowest chrF with the others.",
    columns=(
        Column("score", "string", "", "source_share (ALTI+), log_probability (mean over tokens) or random"),
        Column(
            "kind",
            "string",
            "",
            "swapped: the source of a sentence of similar length; emptied: a source without text; replaced: half of "
            "the source's tokens are another sentence's; worst: see above",
        ),
        Column("layer", "int64", "", "decoder layer after which the share is read, from 1; 0: no layer"),
        *estimate_columns("AUC", "area under the ROC curve", "a random score's", "translations, detached and faithful"),
        Column("beyond", "float64", "AUC", "value minus the AUC of log_probability"),
        Column("beyond_low", "float64", "AUC", "lower end of the 95% interval of `beyond`"),
        Column("beyond_high", "float64", "AUC", "upper end of the 95% interval of `beyond`"),
        Column("mean_detached", "float64", "share; nats; 1", "mean score of the detached translations"),
        Column("mean_faithful", "float64", "share; nats; 1", "mean score of the faithful translations"),
    ),
)


class DetachedTranslation(Intervention):
    r"""How well a low source share detects translations that ignore their source, compared with log-probability.

    $$ \mathrm{AUC} = P(s_- < s_+) + \tfrac12 P(s_- = s_+), \qquad
       s = \frac1T \sum_j r_j \;\text{ or }\; \frac1T \sum_j \log p(y_j \mid y_{<j}, x) $$

    r is the share of the source after a decoder layer by ALTI+ (`source_shares`). The decoder reads every translation
    as its input, so a score belongs to this translation and not to what the model would generate. Detached translations
    are made by changing the source, except that the model's own worst ones (kind `worst`) are found by chrF, which
    other kinds of mistakes lower too.

    Args:
        sentences: Maximum number of pairs, chosen by a hash of their text, so they are the same at every checkpoint.
        worst: Share of the model's own translations that count as detached in the kind `worst`.

    Source: [@dale2023], [@guerreiro2023] for detection by source share and log-probability; [@ferrando2022plus] for
    ALTI+.
    """

    table: ClassVar[TableSchema] = DETACHED_TRANSLATION

    def __init__(self, sentences: int = 150, worst: float = 0.2) -> None:
        if sentences < _LEAST:
            raise UserError(f"sentences must be at least {_LEAST}. Got {sentences}.")
        if not 0 < worst < 1:
            raise UserError(f"worst, a share of translations, must lie between 0 and 1. Got {worst}.")
        self.sentences, self.worst = sentences, worst

    def refusal(self, model: Model) -> str | None:
        if model.task != "seq2seq":
            return f"it does not translate: it is a {model.task} model"
        return model.anatomy.outside_attention()

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        if not reader.has_target or reader.decoder_side == "text":
            name = reader.model.name
            raise NothingToRead(f"{name} does not translate {reader.corpus.name}: {reader.no_target}")
        rows = SentenceScorer(reader).choose(self.sentences, "detached-translation")
        if len(rows) < _LEAST:
            raise NothingToRead(f"{reader.corpus.name} has {len(rows)} pairs of sentences, fewer than {_LEAST}")
        faithful = [_Pair.of(reader, int(row)) for row in rows]
        detached = {kind: made for kind, made in _detached(faithful).items() if made}
        frames = []
        with current_display().progress(f"Translations of {reader.model.name}", 1 + len(detached) + 1) as progress:
            true = _scores(reader.model, faithful, progress)
            for kind, pairs in detached.items():
                frames += _rows(kind, _scores(reader.model, pairs, progress), true)
            frames += self._own(reader, faithful, progress)
        return pd.DataFrame(frames, columns=self.table.column_names)

    def _own(self, reader: Reader, pairs: "Sequence[_Pair]", progress: Any) -> list[dict[str, Any]]:
        """The model's own translations: the worst ones by chrF, and the others."""
        sentences = [reader.corpus[pair.row] for pair in pairs]
        references = as_model_writes(reader.model, [str(one.translation) for one in sentences])
        outputs = translate(reader.model, [one.text for one in sentences], beams=1)
        metric = CHRF()
        quality = np.array(
            [metric.sentence_score(text, [right]).score for text, right in zip(outputs, references, strict=True)]
        )
        scores = _scores(reader.model, [pair.saying(reader, text) for pair, text in zip(pairs, outputs, strict=True)])
        progress.advance(1)
        cut = np.sort(quality)[max(0, round(self.worst * len(pairs)) - 1)]
        worst = quality <= cut if cut < quality.max() else quality < cut
        if not worst.any():
            current_display().note(f"All translations of {reader.model.name} have the same chrF, so none is the worst.")
            return []
        return list(_rows(WORST, scores.at(worst), scores.at(~worst)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Pair:
    row: int
    sentence: int
    kind: str = ""
    source: Int[np.ndarray, " token"]
    special: Bool[np.ndarray, " token"]
    inputs: Int[Tensor, " position"]
    labels: Int[Tensor, " position"]

    @classmethod
    def of(cls, reader: Reader, row: int) -> "_Pair":
        read = reader.sentence_rows(row, "clean", 0)
        source, target = read[reader.source_stack], read["decoder"]
        return cls(
            row=row,
            sentence=int(reader.corpus.content_ids[row]),
            source=source.tokens,
            special=source.special,
            inputs=torch.from_numpy(target.tokens.astype(np.int64)),
            labels=torch.from_numpy(target.labels.astype(np.int64)),
        )

    def saying(self, reader: Reader, text: str) -> "_Pair":
        """This pair with another translation of the same source."""
        ids = torch.tensor([reader.tokenizer("decoder")(text_target=text)["input_ids"]])
        inputs, labels = decoder_inputs(reader.model, ids)
        return replace(self, inputs=inputs[0], labels=labels[0])

    def batch(self, model: Model) -> dict[str, Tensor]:
        source = torch.from_numpy(self.source.astype(np.int64))[None].to(model.device)
        batch = {"input_ids": source, "attention_mask": torch.ones_like(source)}
        return batch | {"decoder_input_ids": self.inputs[None].to(model.device)}


def _detached(pairs: Sequence[_Pair]) -> dict[str, list[_Pair]]:
    """The translations with other sources, by kind; `emptied` skips sources without special tokens."""
    found: dict[str, list[_Pair]] = {SWAPPED: [], EMPTIED: [], REPLACED: []}
    for pair, other in zip(pairs, _partners(pairs), strict=True):
        half = pair.source.copy()
        words, others = np.flatnonzero(~pair.special), other.source[~other.special]
        chosen = stream("detached-replaced", pair.sentence).random(len(words)) < 0.5
        if len(others):
            half[words[chosen]] = others[np.arange(len(words))[chosen] % len(others)]
        found[SWAPPED].append(replace(pair, kind=SWAPPED, source=other.source, special=other.special))
        found[REPLACED].append(replace(pair, kind=REPLACED, source=half))
        if pair.special.any():
            emptied = pair.source[pair.special]
            found[EMPTIED].append(replace(pair, kind=EMPTIED, source=emptied, special=np.ones_like(emptied, bool)))
    return found


def _partners(pairs: Sequence[_Pair]) -> list[_Pair]:
    """For each pair, another pair whose source is about as long."""
    order = np.argsort([len(pair.source) for pair in pairs], kind="stable")
    partner = np.empty(len(pairs), dtype=np.int64)
    partner[order] = np.roll(order, 1)
    return [pairs[place] for place in partner]


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    values_NK: Float[np.ndarray, "translation score"]
    blocks: Int[np.ndarray, " translation"]

    def at(self, keep: np.ndarray) -> "_Scores":
        return _Scores(self.values_NK[keep], self.blocks[keep])


def _scores(model: Model, pairs: Sequence[_Pair], progress: Any = None) -> _Scores:
    values = np.array([_score(model, pair) for pair in pairs])
    if progress is not None:
        progress.advance(1)
    return _Scores(values, block_of(np.array([pair.sentence for pair in pairs])))


def _score(model: Model, pair: _Pair) -> list[float]:
    batch = pair.batch(model)
    (mixing,) = alti_contributions(model, batch)
    predicted = pair.labels != NO_LABEL
    shares = source_shares(mixing)[:, predicted].mean(1)
    with torch.inference_mode():
        logits = forward_logits(model, batch | {"use_cache": False})[0].double().cpu()[predicted]
    chances = logits.log_softmax(-1).gather(1, pair.labels[predicted][:, None])
    return [
        *shares.tolist(),
        float(chances.mean()),
        float(stream("detached-random", pair.kind, pair.sentence).random()),
    ]


def _rows(kind: str, detached: _Scores, faithful: _Scores) -> Iterator[dict[str, Any]]:
    found = [
        Detection.of(low, high, detached.blocks, faithful.blocks)
        for low, high in zip(detached.values_NK.T, faithful.values_NK.T, strict=True)
    ]
    *shares, likely, random = found
    units, count = len(np.union1d(detached.blocks, faithful.blocks)), len(detached.blocks) + len(faithful.blocks)
    for index, one in enumerate(found):
        difference = one.value - likely.value
        effects = block_effects(difference, one.replicates - likely.replicates)
        ends = block_interval(difference, effects, scale=(-1.0, 1.0), count=count, units=units)
        yield {
            "score": SOURCE_SHARE if index < len(shares) else LOG_PROBABILITY if one is likely else RANDOM,
            "kind": kind,
            "layer": index + 1 if index < len(shares) else NO_LAYER,
            **estimate(one.value, one.replicates, random.value, count, scale="share", units=units),
            "beyond": math.nan if one is likely else difference,
            "beyond_low": math.nan if one is likely else ends.low,
            "beyond_high": math.nan if one is likely else ends.high,
            "mean_detached": float(detached.values_NK[:, index].mean()),
            "mean_faithful": float(faithful.values_NK[:, index].mean()),
        }
