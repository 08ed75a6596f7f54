"""What the claims about training read from tables: parts' shares in the loss change, and when parts raise the loss.

If a number has no bootstrap over sentences (counts of steps, figures of a whole run), its replicates repeat that
number, so its interval comes only from seeds. Numbers refer to the training sentences and the first term of the loss.
"""

# S: series of windows of each stack, (layer, window); K: entries of a profile; R: bootstrap replicates

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from infoflow.findings._finding import Agreement, Condition, Curves, exceeds
from infoflow.findings._model_group import CAUSAL, MASKED, NAMES, OBJECTIVES, TRANSLATION, Absent
from infoflow.findings._readings import limit
from infoflow.findings._table import Reading, SeedRows, Table, exact
from infoflow.foundation import stream
from infoflow.results import Spec

from ..measures import ALLOCATION_CORPORA, ALLOCATION_SIMILARITY

MAIN_STACK: Mapping[Spec, str] = {CAUSAL: "decoder", MASKED: "encoder", TRANSLATION: "encoder"}
COMPONENTS = ("query", "key", "value", "output", "mlp_in", "mlp_out", "norm")
_LEAST_AGREEMENT = 0.7
ATTENTION, FEED_FORWARD = COMPONENTS[:4], COMPONENTS[4:6]


def profile(objective: Spec, stack: str = "", number: Literal["value", "parameters"] = "value") -> Reading:
    """Loss change of each layer and component inside a stack's blocks, as shares of the total.

    Components are self-attention, feed-forward and norms; positive shares helped. The baseline is an equal allocation
    to all parameters; `"parameters"` gives shares of the parameters.
    """
    table = _recorded("groups", objective, stack or MAIN_STACK[objective], "component", "layer", "kind", "parameters")
    return table.reduce(_profile).changed(number=number)


def profile_similarity(first: Spec, second: Spec, *stacks: str) -> Reading:
    """Rank correlation of the share profiles of two stacks (default: the main ones), over pairs of different seeds.

    Its baseline has no replicates.
    """
    table = _profile_pairs(ALLOCATION_SIMILARITY.name, first, second, "ordered", stacks)
    return table.reduce(_one_similarity)


def corpus_similarity(first: Spec, second: Spec, corpora: Literal["same", "other"]) -> Reading:
    """The mean of `profile_similarity` over pairs of corpora (different, or the same), for each pair of seeds."""
    table = _profile_pairs(ALLOCATION_CORPORA.name, first, second, "unordered", ())
    names = f"{NAMES[first]} ({MAIN_STACK[first]}) and {NAMES[second]} ({MAIN_STACK[second]})"
    absent = f"no two training runs of {names} on {corpora} corpora, under different seeds, were compared"
    return replace(table, absent=absent).reduce(_mean_similarity, same=corpora == "same")


def hurting(objective: Spec, components: tuple[str, ...]) -> Reading:
    """Share of the steps in which a component, summed over the layers of the main stack, raised the loss."""
    table = _recorded("hurting", objective, MAIN_STACK[objective], *_HURTING, number="hurt")
    return table.reduce(_hurting, components=components)


def last_hurting(objective: Spec) -> Reading:
    """The last step in which a component, summed over a stack's layers, raised the loss, as a share of the training.

    A second number says whether this is the last step of the training; if so, longer training might have later
    steps that raise the loss.
    """
    table = _recorded("hurting", objective, ..., *_HURTING, "chords", number="last_hurt")
    return table.reduce(_last_hurting, components=(*ATTENTION, *FEED_FORWARD))


def window_mean(objective: Spec, column: Literal["helping", "alternated", "top_share"]) -> Reading:
    """A share of the parameters, averaged over the whole training."""
    number = "helped" if column == "helping" else column
    table = _recorded("windows", objective, None, "hurt", "alternated", "top_share", number=number)
    return table.reduce(_window_mean)


def reliability(objective: Spec, statistic: str, rule: str = "") -> Reading:
    """A statistic from the table `allocation_reliability`, such as a residual or a correlation of halves."""
    return _recorded("reliability", objective).where(statistic=statistic, rule=rule).reduce(_only)


def halves_agree(objectives: Sequence[Spec] = OBJECTIVES, *, parameters: bool = False) -> Agreement:
    """Whether two halves of the sentences agree on totals of parameter groups, or of single parameters.

    The threshold is ours: at a correlation of .7, the mean of both halves would have a correlation of
    2 · .7 / 1.7 = .82 with the mean of two other halves.
    """
    which = "parameters" if parameters else "groups without embeddings"
    absent = "the recording has no halves: [dynamics] parts must be 2 or more; single parameters must be followed, too"
    reads = {NAMES[one]: reliability(one, f"half correlation of {which}").changed(absent=absent) for one in objectives}
    return Agreement(
        reads=reads, least=_LEAST_AGREEMENT, of=f"totals of {'single' if parameters else 'groups of'} parameters"
    )


def synchrony(objective: Spec, *, turned: bool = False) -> Reading:
    """Mean share of the peaks that two layers of the main stack have in common, over all pairs of layers.

    A layer peaks in a window in which it lowers the loss more than in both neighbouring windows. With `turned`, each
    layer's series is first rotated by a random number of windows.
    """
    return _recorded("steps", objective, MAIN_STACK[objective], "window", "layer").reduce(_synchrony, turned=turned)


def head_spread(objective: Spec) -> Reading:
    """Inequality of the heads of a layer, averaged over layers.

    It is the standard deviation over heads minus the part due to the choice of sentences, in units of the layer's mean
    absolute value. That part is the baseline.
    """
    table = _recorded("heads", objective, MAIN_STACK[objective], "layer", "head", "value", "replicates")
    return table.where(kind="self").reduce(_head_spread)


def components_by_layer(curve: np.ndarray) -> np.ndarray:
    """Reshape a profile to (N, layer, component), with components in the order of `COMPONENTS`."""
    return curve.reshape(len(curve), -1, len(COMPONENTS))


def total_of(curve: np.ndarray, components: tuple[str, ...]) -> np.ndarray:
    """Sum of some components of a profile, (N, layer)."""
    return components_by_layer(curve)[:, :, [COMPONENTS.index(name) for name in components]].sum(axis=2)


def own_over_others(name: str, curves: Curves) -> Condition:
    """For any two objectives, the similarity of each with itself minus the similarity between them."""
    pairs = [(own, one, other) for one, other in combinations(OBJECTIVES, 2) for own in (one, other)]
    gaps = [curves[own.name] - curves[f"{one.name}, {other.name}"] for own, one, other in pairs]
    labels = [f"{NAMES[own]}, over {NAMES[one]} and {NAMES[other]}" for own, one, other in pairs]
    return exceeds(name, np.concatenate(gaps, axis=1), 0.0, "rank correlation", labels)


_HURTING = ("level", "component", "kind", "updates_per_chord")


def _recorded(name: str, objective: Spec, stack: Any = None, *needs: str, number: Any = "value") -> Table:
    absent = f"no training of a {NAMES[objective]} was recorded"
    table = Table(
        f"allocation_{name}", objective, needs=("term", *needs), number=number, absent=absent, no_model=absent
    )
    return table.where(set="train") if stack is None else table.where(set="train", stack=stack)


def _profile_pairs(name: str, first: Spec, second: Spec, seeds: Any, stacks: tuple[str, ...]) -> Table:
    one, other = stacks or (MAIN_STACK[first], MAIN_STACK[second])
    names = f"{NAMES[first]} ({one}) and {NAMES[second]} ({other})"
    absent = f"no two recorded training runs of {names} under different seeds were compared"
    table = Table(name, first, second, seeds, absent=absent)
    return table.where(stack_a=one, stack_b=other, normalisation="share", metric="spearman")


def _first_term(rows: SeedRows) -> SeedRows:
    return rows.at(rows.frame["term"] == rows.frame["term"].iloc[0])


def _profile(rows: SeedRows) -> np.ndarray:
    """Shares by layer and component (norms summed), with their replicates, (1 + R, K)."""
    rows = _first_term(rows)
    inside = (rows.frame["layer"] >= 0) & (rows.frame["kind"] != "cross") & rows.frame["component"].isin(COMPONENTS)
    rows = rows.at(inside)
    layers, components = rows.frame["layer"].to_numpy(), rows.frame["component"].map(COMPONENTS.index).to_numpy()
    size = (int(layers.max()) + 1) * len(COMPONENTS)
    sums = np.stack([np.bincount(layers * len(COMPONENTS) + components, one, size) for one in rows.numbers])
    shares = sums / np.abs(sums.sum(axis=1, keepdims=True)) * (1 if rows.number == "parameters" else -1)
    if rows.number == "value" and len(shares) < 3:
        raise Absent("the examples were not divided into parts, so shares have no intervals")
    return shares if rows.number == "value" else exact(shares[0])


def _one_similarity(rows: SeedRows) -> np.ndarray:
    if len(rows.frame) > 1:
        raise Absent("allocation_similarity holds a pair of models twice")
    return rows.numbers if rows.number == "value" else exact(rows.numbers[0])


def _mean_similarity(rows: SeedRows, same: bool) -> np.ndarray | None:
    rows = rows.at((rows.frame["corpus_a"] == rows.frame["corpus_b"]) == same)
    if rows.frame.empty:
        return None
    values, draws = rows.column("value"), rows.replicates.T
    return np.concatenate([values.mean(keepdims=True), draws.mean(axis=0)])[:, None]


def _steps_of_blocks(rows: SeedRows, components: tuple[str, ...]) -> SeedRows:
    rows = _first_term(rows)
    if (rows.column("updates_per_chord") > 1).any():
        raise Absent("several updates were taken together, so hurting steps are not known")
    frame = rows.frame
    rows = rows.at((frame["level"] == "block") & (frame["kind"] != "cross") & frame["component"].isin(components))
    if set(rows.frame["component"]) != set(components):
        raise Absent("allocation_hurting lacks components")
    return rows


def _hurting(rows: SeedRows, components: tuple[str, ...]) -> np.ndarray:
    rows = _steps_of_blocks(rows, components)
    largest = rows.frame.groupby("component")["hurt"].max().clip(lower=0)
    return exact(largest[list(components)])


def _last_hurting(rows: SeedRows, components: tuple[str, ...]) -> np.ndarray:
    rows = _steps_of_blocks(rows, components)
    share = (rows.frame["last_hurt"].clip(lower=0) / rows.frame["chords"]).max()
    return exact([share, limit(share >= 1)])


def _window_mean(rows: SeedRows) -> np.ndarray:
    frame = _first_term(rows).frame
    share = frame[rows.number]
    if rows.number == "helped":
        share = share / (share + frame["hurt"]).replace(0, np.nan)
    mean = share.groupby(frame["seed"]).mean()  # sums in the order of pandas, window after window
    if np.isnan(mean.to_numpy()).any():
        raise Absent("single parameters were not followed")
    return exact(mean)


def _only(rows: SeedRows) -> np.ndarray:
    values = _first_term(rows).column("value")
    if len(values) != 1 or np.isnan(values).any():
        raise Absent("allocation_reliability lacks a figure, or holds one twice")
    return exact(values)


def _synchrony(rows: SeedRows, turned: bool) -> np.ndarray:
    frame = _first_term(rows.at(rows.frame["layer"] >= 0)).frame
    series = -frame.pivot_table(index="layer", columns="window", values="value", aggfunc="sum").to_numpy(dtype=float)
    if series.shape[0] < 2 or series.shape[1] < 10:
        raise Absent("synchrony needs two layers and ten windows")
    if not turned:
        return exact([_common_peaks(series)])
    rng, windows = stream("synchrony", len(series)), series.shape[1]
    rolled = [np.stack([np.roll(row, rng.integers(1, windows)) for row in series]) for _ in range(100)]
    return exact([np.mean([_common_peaks(each) for each in rolled])])


def _common_peaks(series: np.ndarray) -> float:
    middle = series[:, 1:-1]
    peaks = (middle > series[:, :-2]) & (middle > series[:, 2:])
    shares = [
        (peaks[i] & peaks[j]).sum() / max(np.sqrt(peaks[i].sum() * peaks[j].sum()), 1)
        for i in range(len(peaks))
        for j in range(i)
    ]
    return float(np.mean(shares))


def _head_spread(rows: SeedRows) -> np.ndarray:
    rows = _first_term(rows)
    rows = rows.at(rows.frame["head"] >= 0)
    if len(rows.replicates) < 2:
        raise Absent("allocation_heads has no heads with intervals")
    if np.min(rows.frame.groupby("layer").size()) < 2:
        raise Absent("too few heads: a layer with one has no spread over heads")
    return exact([np.mean([_spread_of(heads) for _, heads in rows.groups("layer")])])


def _spread_of(heads: SeedRows) -> float:
    values, draws = heads.column("value"), heads.replicates.T
    noise = float((draws - draws.mean(axis=1, keepdims=True)).var(axis=1).mean())
    spread = max(float(values.var(ddof=1)) - noise, 0.0) if heads.number == "value" else noise
    return float(np.sqrt(spread) / np.abs(values).mean())
