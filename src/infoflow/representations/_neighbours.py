"""What a state's neighbours share with it: the token, the tokens around it, its position, its tag."""

from abc import abstractmethod
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtri

from infoflow.flow import SAMPLE_COLUMNS, RankStrata, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, Scale, UserError, block_interval, current_display
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates

from ._information_estimate import standard_noise, wider
from ._nearest import agreements, check_neighbours
from ._within_tokens import UNKNOWN, PoolRules, PoolScore, TokenAspect, averaged, pool_scores, token_pools

Scores = list[dict[str, PoolScore]]  # for each layer, the statistic of each aspect

SETTINGS = (
    Column("pools", "int64", "tokens", "number of tokens averaged over; only those whose occurrences differ"),
    Column("neighbours", "int64", "neighbours", "k"),
    Column("metric", "string", "", "cosine or euclidean"),
    Column("few", "string", "", "how tokens with few occurrences are treated"),
    Column("least", "int64", "occurrences", "tokens sampled less often are left out"),
)

_FOUND: WeakKeyDictionary[TokenSample, dict[tuple, Scores]] = WeakKeyDictionary()
"""Results by sample, kept while it lives, so that measures with equal settings search only once."""


class AbstractTokenPools(SampleMeasure):
    """A statistic of neighbours among the occurrences of one token, averaged over occurrences and then over tokens.

    The sample holds the most frequent tokens, with the same number of occurrences of each if possible. The statistic
    depends on this number, since k neighbours are a larger share of a small pool, so compare only values of equal
    settings. A token whose occurrences all have the same tag (position, neighbouring token) is left out, since its
    score would not depend on vectors. Error bars resample the sentences of both queries and neighbours, and allow for
    the fact that in other sentences other tokens would have enough occurrences (`averaged`).

    Args:
        k: Number of neighbours.
        metric: `"cosine"` or `"euclidean"`.
        few: What to do with rare tokens; see `within_token_agreement`.
        minimum: Minimum number of occurrences of a token with `"require"`; default: 2k + 1.
        types: Number of most frequent tokens to use.
        per_type: Maximum number of occurrences of each token, by default 10 k; time grows quadratically.
        subword: The token that carries its word's tag, `"first"` or `"last"`.
    """

    scale: ClassVar[Scale] = "share"
    what: ClassVar[str]  # what occurrences must differ in; named in a note

    def __init__(
        self,
        k: int = 50,
        metric: str = "cosine",
        few: str = "require",
        minimum: int | None = None,
        types: int = 50,
        per_type: int | None = None,
        subword: str = "first",
    ) -> None:
        self._rules = PoolRules.of(k, few, metric, minimum)
        per_type = 10 * k if per_type is None else per_type
        for name, value, least in (("types", types, 1), ("per_type", per_type, self._rules.least)):
            if value < least:
                raise UserError(f"{name} must be at least {least}. Got {value}.")
        if subword not in ("first", "last"):
            raise UserError(f'subword must be "first" or "last". Got {subword}.')
        self.k, self.metric, self.few, self.minimum = k, metric, few, minimum
        self.types, self.per_type, self.subword = types, per_type, subword
        self.request = SampleRequest(strata=RankStrata.of_types(types, per_type))

    def scores(self, sample: TokenSample) -> Scores:
        """Every aspect's statistic in every layer; the last search is reused if it had the same settings."""
        found = _FOUND.setdefault(sample, {})
        key = (self._rules, self.subword)
        if key not in found:
            found[key] = _search(sample, self._rules, self.subword)
        return found[key]

    @abstractmethod
    def aspects(self, sample: TokenSample) -> dict[str, dict[str, Any]]:
        """The compared aspects, each with its columns of the table."""

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        aspects = self.aspects(sample)
        if not aspects:
            return pd.DataFrame(columns=self.table.column_names)
        rows = [
            {**self._row(sample, layer, scores[aspect]), **columns}
            for layer, scores in enumerate(self.scores(sample))
            for aspect, columns in aspects.items()
            if aspect in scores
        ]
        if not rows:
            current_display().note(
                f"{self.name} of {sample.facts.model} is skipped: no token has {self._rules.least} sampled "
                f"occurrences that differ in {self.what}. Use a larger corpus or fewer neighbours (k; in a "
                "plan analysis.neighbours)."
            )
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _row(self, sample: TokenSample, layer: int, score: PoolScore) -> dict[str, Any]:
        replicates = linear_replicates(score.value, score.value - score.effects)
        # All layers share one draw, because layers, and models of the same text, use the same tokens.
        replicates += score.spread * standard_noise(len(replicates), "token-pools")
        ends = block_interval(score.value, score.effects, scale=self.scale, count=score.count)
        ends = wider(ends, score.value, score.spread * float(ndtri(0.975)), self.scale)
        return {
            "stack": sample.facts.stack,
            "layer": layer,
            **estimate(score.value, replicates, score.chance, score.count, ends=ends),
            "pools": score.pools,
            "neighbours": self.k,
            "metric": self.metric,
            "few": self.few,
            "least": self._rules.least,
        }


def _search(sample: TokenSample, rules: PoolRules, subword: str) -> Scores:
    pools = token_pools(sample.occurrences.token, rules.least)
    samples = [sample.take(rows) for rows in pools]
    aspects = [_aspects(pool, subword) for pool in samples]
    layers = []
    with current_display().progress("Neighbours within tokens", sample.num_states * len(pools), "pools") as progress:
        for layer in range(sample.num_states):
            parts: dict[str, list[PoolScore]] = {}
            for pool, compared in zip(samples, aspects, strict=True):
                # Read one pool's states at a time, so that a large sample stays on disk.
                states = torch.from_numpy(pool.states(layer))
                for name, score in pool_scores(states, compared, pool.blocks, rules).items():
                    parts.setdefault(name, []).append(score)
                progress.advance(1)
            layers.append({name: averaged(scores, rules.least) for name, scores in parts.items()})
    return layers


def _aspects(sample: TokenSample, subword: str) -> dict[str, TokenAspect]:
    """Position, both neighbouring tokens, and every tag of the word, on the token that carries it."""
    at = sample.occurrences
    carries = at.subword == (0 if subword == "first" else at.subwords - 1)
    tags = {tag_key(name): np.where(carries, tag.codes, UNKNOWN) for name, tag in sample.tags.items()}
    same = {"left": at.previous, "right": at.next, **tags}
    return {
        "position": TokenAspect(_varied(at.position), "distance"),
        **{name: TokenAspect(_varied(values), "same") for name, values in same.items()},
    }


def _varied(values: np.ndarray) -> np.ndarray:
    """The values, all marked unknown if they are equal, because the token's score would not depend on vectors."""
    return values if len(np.unique(values[values != UNKNOWN])) > 1 else np.full_like(values, UNKNOWN)


def tag_key(name: str) -> str:
    """The aspect of a tag column, with a prefix because a corpus may call a column "left"."""
    return f"tag {name}"


IDENTITY_NEIGHBOURS = TableSchema(
    name="identity_neighbours",
    version=3,
    description="Fraction of a state's nearest states (other occurrences, same layer) that belong to the same token. "
    "In a larger sample k neighbours are a smaller share, and more tokens have k others: compare only rows with the "
    "same settings and the same sample size.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        *estimate_columns("fraction", "fraction of neighbours with the same token", "random neighbours: Σp² of types"),
        Column("neighbours", "int64", "neighbours", "k"),
        Column("metric", "string", "", "cosine or euclidean"),
        Column("few", "string", "", "how tokens with at most k occurrences are treated"),
        *SAMPLE_COLUMNS,
    ),
)


class IdentityNeighbours(SampleMeasure):
    """How well a layer separates tokens: `neighbour_agreement` with the token id as label.

    Error bars come from a first-order jackknife over the sentences of both queries and neighbours. If a sentence is
    left out, the next nearest occurrences take its place among the neighbours of others. The baseline is the fraction
    for random other occurrences, averaged over the same queries: Σp² if every token type is queried.

    Args:
        k: Number of neighbours.
        metric: `"cosine"` or `"euclidean"`.
        few: What to do with tokens of fewer than k + 1 occurrences; see `neighbour_agreement`.
        occurrences: At most this many sampled tokens; time grows quadratically.

    Source: [@voita2019evolution], k = 50.
    """

    table: ClassVar[TableSchema] = IDENTITY_NEIGHBOURS

    def __init__(self, k: int = 50, metric: str = "cosine", few: str = "require", occurrences: int = 20_000) -> None:
        check_neighbours(k, few, metric)
        self.k, self.metric, self.few, self.occurrences = k, metric, few, occurrences
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        labels = np.unique(sample.occurrences.token, return_inverse=True)[1]
        if np.bincount(labels).max() <= (self.k if self.few == "require" else 1):
            current_display().note(
                f"{self.name} of {sample.facts.model} is skipped: no token has the {self.k + 1} occurrences that "
                f"{self.k} neighbours need. Use a larger sample or fewer neighbours (k; in a plan analysis.neighbours)."
            )
            return pd.DataFrame(columns=self.table.column_names)
        rows = [self._layer(sample, labels, layer) for layer in range(sample.num_states)]
        return pd.DataFrame(rows).assign(**sample.sizes(self.request))

    def _layer(self, sample: TokenSample, labels: np.ndarray, layer: int) -> dict:
        found = agreements(torch.from_numpy(sample.states(layer)), labels, self.k, self.few, self.metric)
        value, blocks = float(found.scores.mean()), sample.blocks
        effects = np.bincount(blocks[found.queries], weights=found.scores - value, minlength=NUM_BLOCKS)
        effects += np.bincount(blocks, weights=found.pulls - found.pulls.mean(), minlength=NUM_BLOCKS)
        replicates = linear_replicates(value, value - effects / len(found.queries))
        return {
            "stack": sample.facts.stack,
            "layer": layer,
            **estimate(value, replicates, baseline=float(found.chance.mean()), count=len(found.queries), scale="share"),
            "neighbours": self.k,
            "metric": self.metric,
            "few": self.few,
        }


CONTEXT_NEIGHBOURS = TableSchema(
    name="context_neighbours",
    version=3,
    description="Fraction of the nearest occurrences of the same token that have the same token before or after them.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column("side", "string", "", "left: the token before; right: the token after"),
        *estimate_columns(
            "fraction",
            "fraction of neighbours with the same token on that side",
            "random neighbours: Σp² within a token, averaged in the same way",
        ),
        *SETTINGS,
    ),
)


class ContextNeighbours(AbstractTokenPools):
    """How much a layer keeps of the tokens next to a token: `within_token_agreement` with those tokens as labels.

    Occurrences at the beginning or end of their sentence are left out on the side where they have no neighbour.
    Arguments are those of `AbstractTokenPools`.

    Source: [@voita2019evolution], k = 50.
    """

    table: ClassVar[TableSchema] = CONTEXT_NEIGHBOURS
    what: ClassVar[str] = "the token beside them"

    def aspects(self, sample: TokenSample) -> dict[str, dict[str, Any]]:
        return {side: {"side": side} for side in ("left", "right")}


POSITION_NEIGHBOURS = TableSchema(
    name="position_neighbours",
    version=3,
    description="Mean distance in position between an occurrence and its nearest occurrences of the same token.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        *estimate_columns(
            "tokens", "mean distance in position; lower keeps more", "all pairs of occurrences of a token"
        ),
        *SETTINGS,
    ),
)


class PositionNeighbours(AbstractTokenPools):
    """How well a layer keeps a token's position in the sentence: `position_distance`.

    Arguments are those of `AbstractTokenPools`.

    Source: [@voita2019evolution], k = 50.
    """

    table: ClassVar[TableSchema] = POSITION_NEIGHBOURS
    scale: ClassVar[Scale] = "positive"
    what: ClassVar[str] = "position"

    def aspects(self, sample: TokenSample) -> dict[str, dict[str, Any]]:
        return {"position": {}}


TAG_NEIGHBOURS = TableSchema(
    name="tag_neighbours",
    version=3,
    description="Fraction of the nearest occurrences of the same token whose word has the same tag.",
    made_by="it needs a corpus with tags, such as the built-in grammar, a treebank or a .tagged file, and a plan that "
    "does not leave it out",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column("tag", "string", "", "column of the corpus, such as ccg_left or upos"),
        *estimate_columns(
            "fraction",
            "fraction of neighbours with the same tag",
            "random neighbours: Σp² within a token, averaged in the same way",
        ),
        *SETTINGS,
        Column("subword", "string", "", "which token of a word carries its tag"),
    ),
)


class TagNeighbours(AbstractTokenPools):
    """How much syntax a layer adds to a token: `within_token_agreement` with its word's tag as label.

    Every tag column of the corpus is used. A word's tag is carried by its first subword, or its last; other subwords
    and words without a tag are left out. Arguments are those of `AbstractTokenPools`.

    Source: [@voita2019evolution], k = 50, with CCG categories and their left and right parts.
    """

    table: ClassVar[TableSchema] = TAG_NEIGHBOURS
    what: ClassVar[str] = "their tag"

    def aspects(self, sample: TokenSample) -> dict[str, dict[str, Any]]:
        return {tag_key(tag): {"tag": tag, "subword": self.subword} for tag in sample.tags}
