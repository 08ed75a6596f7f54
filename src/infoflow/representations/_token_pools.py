"""Measures of what the nearest occurrences of one token share, with one neighbour search for all of them."""

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtri

from infoflow.flow import SampleMeasure, SampleRequest, TokenSample, TypeStrata
from infoflow.foundation import Scale, UserError, block_interval, current_display
from infoflow.results import Column, estimate, linear_replicates

from ._further_error import standard_noise, wider
from ._within_tokens import UNKNOWN, PoolRules, PoolScore, TokenAspect, averaged, pool_scores, token_pools

Scores = list[dict[str, PoolScore]]
"""For each layer, the statistic of each aspect."""

SETTINGS = (
    Column(name="pools", dtype="int64", unit="tokens", description="number of tokens averaged over: those that vary"),
    Column(name="neighbours", dtype="int64", unit="neighbours", description="k"),
    Column(name="metric", dtype="string", unit="", description="cosine or euclidean"),
    Column(name="few", dtype="string", unit="", description="treatment of tokens with few occurrences"),
    Column(name="least", dtype="int64", unit="occurrences", description="tokens with fewer sampled ones are left out"),
)

_FOUND: WeakKeyDictionary[TokenSample, dict[tuple, Scores]] = WeakKeyDictionary()
"""Results by sample, while it lives: measures with equal settings search once."""


class AbstractTokenPools(SampleMeasure):
    """Neighbours among the occurrences of one token, averaged over occurrences, then tokens.

    The sample holds the most frequent tokens, with the same number of occurrences of each if possible: the share of a
    pool that k neighbours make up, and with it the statistic, depends on the pool's size. Compare only values of equal
    settings. A token whose occurrences all have the same tag (position, neighbouring token) is at chance whatever its
    vectors, and is left out. Error bars resample sentences, of queries and of neighbours alike, and allow for the fact
    that other sentences would give other tokens enough occurrences (`averaged`).

    Args:
        k: Number of neighbours.
        metric: `"cosine"` or `"euclidean"`.
        few: What to do with rare tokens; see `within_token_agreement`.
        minimum: Minimum number of occurrences of a token with `"require"`; default: 2k + 1.
        types: Number of most frequent tokens to use.
        per_type: Maximum number of occurrences of each, by default 10 k; time grows with the square.
        subword: The token that carries its word's tag, `"first"` or `"last"`.
    """

    scale: ClassVar[Scale] = "share"

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
        self.request = SampleRequest(strata=TypeStrata(num_types=types, per_type=per_type))

    def scores(self, sample: TokenSample) -> Scores:
        """Every aspect's statistic in every layer; from the last search if it had the same settings."""
        found = _FOUND.setdefault(sample, {})
        key = (self._rules, self.subword)
        if key not in found:
            found[key] = _search(sample, self._rules, self.subword)
        return found[key]

    def row(self, sample: TokenSample, layer: int, score: PoolScore) -> dict[str, Any]:
        """The columns that all tables of neighbours within tokens share."""
        replicates = linear_replicates(score.value, score.value - score.effects)
        # Layers, and models of the same text, use the same tokens: one draw for all.
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

    def frame(self, sample: TokenSample, rows: list[dict[str, Any]], what: str) -> pd.DataFrame:
        """The table; if it is empty, a note explains why."""
        if not rows:
            current_display().note(
                f"{self.name} of {sample.facts.model} is skipped: no token has {self._rules.least} sampled "
                f"occurrences that differ in {what}. Use a larger corpus or fewer neighbours (k; in a "
                "plan analysis.neighbours)."
            )
        return pd.DataFrame(rows, columns=self.table.column_names)


def _search(sample: TokenSample, rules: PoolRules, subword: str) -> Scores:
    pools = token_pools(sample.occurrences.token, rules.least)
    samples = [sample.take(rows) for rows in pools]
    aspects = [_aspects(pool, subword) for pool in samples]
    layers = []
    with current_display().progress("Neighbours within tokens", sample.num_states * len(pools), "pools") as progress:
        for layer in range(sample.num_states):
            parts: dict[str, list[PoolScore]] = {}
            for pool, compared in zip(samples, aspects, strict=True):
                # One pool's states at a time: a large sample stays on disk.
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
    """Marks all as unknown if the token's occurrences do not differ: then it is at chance whatever its vectors."""
    return values if len(np.unique(values[values != UNKNOWN])) > 1 else np.full_like(values, UNKNOWN)


def tag_key(name: str) -> str:
    """The aspect of a tag column; a corpus may call a column "left"."""
    return f"tag {name}"
