"""Claims about attention sinks and massive activations: S1 to S5."""

# R bootstrap replicates, L layer

import numpy as np

from infoflow.findings._control import seeds_alone
from infoflow.findings._finding import CORRELATION, SHARE, Condition, Curves, Given, claim, exceeds, stays_below
from infoflow.findings._head_numbers import CHOSEN, busiest_layer, heads
from infoflow.findings._model_group import CAUSAL, MASKED, Absent
from infoflow.findings._sources import OURS, Source
from infoflow.findings._table import Reading, SeedRows, Table
from infoflow.results import Spec

from .measures import ATTENTION_SINK, MASSIVE_ABLATION, MASSIVE_ACTIVATION

_STREAMING = Source(
    "Xiao, Tian, Chen, Han and Lewis 2024, Efficient Streaming Language Models with Attention Sinks, ICLR",
    "second hand",
)
_EMERGES = Source(
    "Gu, Pang, Du, Liu, Zhang, Du, Wang and Lin 2025, When Attention Sink Emerges in Language Models: An Empirical "
    "View, ICLR (and its published code)",
    "numbers only",
)
_MASSIVE = Source(
    "Sun, Chen, Kolter and Liu 2024, Massive Activations in Large Language Models, COLM (and its published code)",
    "abstract",
)
_LOWEST = 2
"""Number of the lowest block that counts: the source excludes the two blocks below, whose heads attend differently."""
_TIMES = 1000.0
_SHORT = 0.9
_EXTERNAL = Given(tasks=("causal-lm",))


def _first(objective: Spec, statistic: str) -> Table:
    return heads(ATTENTION_SINK.name, objective, token="first", statistic=statistic)


def _beyond_uniform(rows: SeedRows, lowest: int = 0) -> np.ndarray:
    """Mean over the heads of each layer of the share of attention, minus that of uniform attention, (1 + R, L)."""
    layers = [own for layer, own in rows.groups("layer") if layer >= lowest]
    if not layers:
        raise Absent(f"the model is too shallow: it has no block above number {lowest - 1}")
    return np.stack([own.numbers.mean(axis=1) - own.column("baseline").mean() for own in layers], axis=1)


def _mean_beyond_uniform(rows: SeedRows) -> np.ndarray:
    return _beyond_uniform(rows).mean(axis=1, keepdims=True)


@claim(
    "sinks:S1",
    "Above the two lowest blocks, the heads of a causal LM put much of their attention on the first token, whatever it "
    "is.",
    source=_STREAMING,
    published="Llama-2-7B: over half of the attention in nearly all heads above the two lowest layers (from memory)",
    statistic="share of attention on the first token, minus that of uniform attention, averaged over the heads of each "
    f"block from number {_LOWEST} on: above 0 in all",
    reads={"first": _first(CAUSAL, "share").reduce(_beyond_uniform, lowest=_LOWEST)},
    minimum_seeds=1,
    given=_EXTERNAL,
)
def s1(curves: Curves) -> list[Condition]:
    """Condition on the causal LM's attention to the first token."""
    blocks = [f"block {_LOWEST + number}" for number in range(curves["first"].shape[1])]
    name = "attention on the first token beyond that of uniform attention"
    return [exceeds(name, curves["first"], 0.0, "share of attention", blocks, bounds=CORRELATION)]


@claim(
    "sinks:S2",
    "The values of a causal LM's sink are short: attention on the first token moves little.",
    source=_EMERGES,
    published="the first token's values are far shorter than those of other tokens in Llama models (from memory)",
    statistic="in the block where the first token gets most attention, the length of its values over that of other "
    f"tokens' values, averaged over heads: below {_SHORT}, as untrained models scatter around 1; the block is {CHOSEN}",
    reads={"layer": busiest_layer(_first(CAUSAL, "share"), relative=_first(CAUSAL, "value_norm"))},
    minimum_seeds=1,
    given=_EXTERNAL,
)
def s2(curves: Curves) -> list[Condition]:
    """Condition on the length of the values of the causal LM's first token."""
    return [
        stays_below("length of the first token's values over that of others", curves["layer"][:, 1:2], _SHORT, "ratio")
    ]


_S3_READS: dict[str, Reading] = {
    name: _first(objective, "share").reduce(_mean_beyond_uniform)
    for name, objective in (("causal", CAUSAL), ("masked", MASKED))
}


@claim(
    "sinks:S3",
    "A causal LM makes more of a sink of its first token than a masked LM does.",
    source=OURS,
    published="none: the sources compare no objectives",
    statistic="share of attention on the first token, minus that of uniform attention, averaged over all heads of "
    "self-attention: causal LM minus masked LM, above 0",
    reads=_S3_READS,
    controls=(seeds_alone(_S3_READS, "causal", "masked"),),
)
def s3(curves: Curves) -> list[Condition]:
    """Condition on the causal LM's attention to the first token compared with the masked LM's."""
    gap = curves["causal"] - curves["masked"]
    return [exceeds("excess attention on the first token", gap, 0.0, "share of attention", bounds=CORRELATION)]


def _largest(rows: SeedRows) -> np.ndarray:
    return rows.numbers.max(axis=1, keepdims=True)


def _course(rows: SeedRows) -> np.ndarray:
    """Share of the ratio's rise that one block makes, and share of later layers (except the last) above 1,000."""
    frame = rows.frame.sort_values("layer")
    if len(frame) < 4:
        raise Absent(f"the model is too shallow: it has {len(frame) - 1} blocks, but 3 are needed")
    ratios = SeedRows(frame, rows.number).numbers
    logs = np.log(np.maximum(ratios, 1e-9))
    rises, total = np.diff(logs, axis=1), logs.max(axis=1) - logs[:, 0]
    step = int(rises[0].argmax()) + 1
    by_one = rises[:, step - 1] / np.maximum(total, 1e-9)
    later = ratios[:, step : max(step + 1, ratios.shape[1] - 1)]
    return np.stack([np.clip(by_one, 0, 1), (later >= _TIMES).mean(axis=1)], axis=1)


_RATIO = Table(MASSIVE_ACTIVATION.name, CAUSAL, needs=("layer",), known=True).where(
    statistic="largest", dimension=-1, token="any"
)


@claim(
    "sinks:S4",
    "A causal LM has massive activations, which appear in one block and stay.",
    source=_MASSIVE.beyond,
    published="Llama-2-7B: magnitudes over 1,000 from the output of the second layer to the last but one (from memory)",
    statistic="largest activation of a sentence over the median: above 1,000 in some layer; one block makes over half "
    "of its rise on a logarithmic scale; over half of the layers after that block, without the last, stay above 1,000",
    reads={"largest": _RATIO.reduce(_largest), "course": _RATIO.reduce(_course)},
    minimum_seeds=1,
    given=_EXTERNAL,
)
def s4(curves: Curves) -> list[Condition]:
    """Conditions on the size and persistence of the causal LM's massive activations."""
    by_one, later = np.split(curves["course"], 2, axis=1)
    return [
        exceeds("largest activation over the median", curves["largest"], _TIMES, "ratio"),
        exceeds("share of the rise that one block makes", by_one, 0.5, "share of the rise", bounds=SHARE),
        exceeds("layers after that block with such activations", later, 0.5, "share", bounds=SHARE),
    ]


def _changes(rows: SeedRows) -> np.ndarray:
    """Mean over layers of the loss change from zero, minus that of the control, and minus the change from the mean."""
    changes = dict(rows.groups("mode"))
    if set(changes) != {"zero", "mean"}:
        raise Absent(f"{MASSIVE_ABLATION.name} lacks a mode")
    zero, mean = (changes[mode].numbers.mean(axis=1) for mode in ("zero", "mean"))
    return np.stack([zero - changes["zero"].column("baseline").mean(), zero - mean], axis=1)


@claim(
    "sinks:S5",
    "The largest activations of a causal LM act as biases: its loss needs them, but not their variation.",
    source=_MASSIVE,
    published="Llama-2-7B: zero makes perplexity infinite, the mean leaves it as it is (from memory)",
    statistic="mean over layers of the loss change when each sentence's four largest activations are set to zero: "
    "above that for random activations, and above that when they are set to their mean",
    reads={"change": Table(MASSIVE_ABLATION.name, CAUSAL, needs=("layer", "mode"), known=True).reduce(_changes)},
    minimum_seeds=1,
    given=_EXTERNAL,
)
def s5(curves: Curves) -> list[Condition]:
    """Conditions on the causal LM's loss when its largest activations are replaced."""
    names = ("loss change from zero above that of random activations", "loss change from zero above that from the mean")
    columns = np.split(curves["change"], 2, axis=1)
    return [exceeds(name, own, 0.0, "nats per token") for name, own in zip(names, columns, strict=True)]
