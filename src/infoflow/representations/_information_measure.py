"""Information about the input and the output token, layer by layer."""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from infoflow.flow import NO_LABEL, Activations, Measure, PassOptions, Reader, Regime, Stream, cannot_hide
from infoflow.foundation import UserError, current_display, hash64_array
from infoflow.models import Model
from infoflow.results import TableSchema

from ._clusters import ClusterFit, StateClusters
from ._information_table import MUTUAL_INFORMATION, MUTUAL_INFORMATION_WITHOUT_POSITION, CountedTokens, InformationRows

_LEAST_TOKENS = 20
_LEAST_PER_CLUSTER = 10  # with fewer, most clusters hold one occurrence, and no estimate is possible
_TOKENS_PER_CLUSTER = 100
"""Tokens per cluster that are needed to detect the fall of information between layers.

Levels may still be biased by more than .03 nats, which intervals and `converged` show
(experiments/validation/information).
"""
_CLUSTERS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_MOST_CLUSTERS = 500
_TRAINING_TOKENS = _TOKENS_PER_CLUSTER * _MOST_CLUSTERS
"""Occurrences in the regime "training", where each sentence provides few and is read several times with new noise."""


class MutualInformation(Measure):
    r"""The information in a layer's states about the token they read and the token to predict.

    $$ I(C; T) = \sum_{c,t} p(c,t) \ln \frac{p(c,t)}{p(c)\,p(t)} $$

    C is the cluster of a state (mini-batch k-means, refitted in every layer), T the token. Only the `types` most
    frequent token types count:

    | regime     | side   | occurrences                                                                          |
    |------------|--------|--------------------------------------------------------------------------------------|
    | `clean`    | input  | whose token is frequent; the same for all models, so compare models on this side     |
    | `clean`    | output | of these, those whose token to predict is frequent too                               |
    | `training` | both   | whose input was replaced: both tokens are frequent, and they differ                  |

    So on clean text the two sides of a causal LM differ in `count`. Where [@voita2019evolution] plot the input side
    against the output side, both use the occurrences of the output side.

    Centres are fitted before the pass; successive clusterings alternate between the two halves of the sentences. During
    the pass, every state is only assigned to its nearest centre and counted, so a million tokens are possible. Centres
    also fit the noise of their own states; the two halves show how much (`optimism`), and counting both cancels the
    effect to first order. The plug-in estimate is biased upwards, more in deep layers than in low ones; `value` is
    corrected (`estimate_information`), and `value_by_size` shows how it depends on the number of tokens. The estimate
    is for this number of clusters. A finer clustering has more information (at most H(T)), so do not compare values of
    different `clusters`.

    Intervals cover the choice of sentences (jackknife over 64 blocks), the clustering (the spread over `clusterings`
    with different rows and starts), the few states that centres were fitted to (`optimism`), and the bias that may
    remain (`InformationEstimate.drift`). This is the difference from the value on half of the sentences or, if larger,
    the possible bias from unseen pairs of cluster and token. With Zipf's law the bias falls more slowly than 1/N, so a
    hundred tokens per cluster rarely suffice for `converged` in layers that forget much.

    Args:
        clusters: Number of clusters; 0: the largest of 2, 5, 10, ... `most_clusters` with 100 tokens per cluster. At
            least ten tokens per cluster are needed; otherwise the number is reduced with a warning.
        types: Number of most frequent token types.
        occurrences: Approximate maximum number of tokens, chosen by hash. Each costs 2 bytes per layer and clustering.
        regime: `"clean"`: unmodified text; `"training"`: masked as in training.
        clusterings: Number of runs of k-means to average over; with one, intervals do not cover the clustering.
        most_clusters: Largest number that is chosen if `clusters` is 0; a million tokens allow 10,000.

    Source: [@voita2019evolution]: 10,000 clusters, 1,000 types, natural frequencies, 5 million tokens, no correction.
    """

    table: ClassVar[TableSchema] = MUTUAL_INFORMATION
    needs = frozenset({"hidden"})
    only_replaced = True
    by_token = True
    most_clusters: int = _MOST_CLUSTERS
    _positions: ClassVar[bool] = True  # if False, the mean state at each position is subtracted

    def __init__(
        self,
        clusters: int = 0,
        types: int = 1000,
        occurrences: int = 1_000_000,
        regime: Regime = "clean",
        clusterings: int = 2,
        most_clusters: int = _MOST_CLUSTERS,
    ) -> None:
        least = {"types": 2, "clusterings": 1, "occurrences": 1}
        for name, number in (("types", types), ("clusterings", clusterings), ("occurrences", occurrences)):
            if number < least[name]:
                raise UserError(f"{name} must be at least {least[name]}. Got {number}.")
        if not (clusters == 0 or 2 <= clusters < 1 << 16):
            raise UserError(f"clusters must lie in 2..65,535, or be 0: chosen by the number of tokens. Got {clusters}.")
        self.clusters, self.types, self.clusterings, self.occurrences = clusters, types, clusterings, occurrences
        self.regime: Regime = regime
        self.top_types = types
        if most_clusters != _MOST_CLUSTERS:  # so that results with the default keep their keys
            self.most_clusters = most_clusters
        self._frequent: dict[str, Bool[np.ndarray, " id"]] = {}
        self._fitted: dict[str, StateClusters] = {}
        self._share: dict[str, float] = {}
        self._seen: dict[str, list[CountedTokens]] = {}
        self._facts: dict[str, dict[str, np.ndarray]] = {}  # about the clusters, for processes that did not fit them

    def refusal(self, model: Model) -> str | None:
        return regime_refusal(self.regime, model)

    def prepare(self, reader: Reader) -> None:
        self._model, self._seed = reader.model.name, reader.seed
        for stack, frequencies in reader.frequencies.items():
            self._frequent[stack] = most_frequent(frequencies, self.types)

    def draws(self, reader: Reader) -> int:
        return reader.draws_for(min(self.occurrences, max(_TRAINING_TOKENS, _TOKENS_PER_CLUSTER * self.clusters)))

    def begin(self, reader: Reader, options: PassOptions) -> None:
        both = self.regime == "clean" and options.decoder_states and reader.has_target
        for stack in [reader.source_stack, *(["decoder"] if both else [])]:
            expected = self._expected(reader, stack)
            if expected < 2 * _LEAST_TOKENS:
                continue
            self._share[stack] = min(1.0, self.occurrences / expected)
            clusters = self._affordable(int(expected * self._share[stack]))
            self._fitted[stack] = ClusterFit(
                reader=reader,
                options=options,
                stack=stack,
                regime=self.regime,
                kept=lambda stream, stack=stack: self._kept(stream, stack),
                clusters=clusters,
                clusterings=self.clusterings,
                draws=1 if self.regime == "clean" else self.draws(reader),
                positions=self._positions,
            ).run()
            self._facts[stack] = self._fitted[stack].facts()

    def _expected(self, reader: Reader, stack: str) -> int:
        """Expected number of occurrences to count."""
        frequencies = reader.frequencies[stack]
        num = int(frequencies[self._frequent[stack]].sum() * reader.counted_share)
        if self.regime == "clean":
            return num
        return int(num * min(1.0, self.draws(reader) * reader.probed_share))

    def _affordable(self, tokens: int) -> int:
        if self.clusters == 0:
            found = [each for each in _CLUSTERS if each * _TOKENS_PER_CLUSTER <= tokens and each <= self.most_clusters]
            return max(found, default=_CLUSTERS[0])
        most = max(2, tokens // _LEAST_PER_CLUSTER)
        if self.clusters > most:
            current_display().warn(
                f"{tokens:,} tokens are too few for {self.clusters:,} clusters: using {most:,}, one per "
                f"{_LEAST_PER_CLUSTER} tokens. Give a larger corpus or fewer clusters."
            )
        return min(self.clusters, most)

    def _kept(self, stream: Stream, stack: str) -> Bool[Tensor, "sentence token"]:
        frequent = torch.from_numpy(self._frequent[stack]).to(stream.input_ids.device)
        kept = stream.valid & stream.counted & frequent[stream.input_ids]
        if self.regime == "training":
            kept &= (stream.labels != NO_LABEL) & (stream.labels != stream.input_ids)
            kept &= frequent[stream.labels.clamp(min=0)]
        return kept

    def update(self, activations: Activations) -> None:
        for stack, fitted in self._fitted.items():
            stream = activations.streams[stack]
            kept = self._kept(stream, stack)
            sentence = np.broadcast_to(activations.sentence_ids[:, None], kept.shape)
            if self._share[stack] < 1:
                kept &= torch.from_numpy(self._thinned(sentence, stream, stack)).to(kept.device)
            at = kept.cpu().numpy()
            states, positions = activations.hidden[stack], stream.position[kept].long()
            counted = CountedTokens(
                sentence=sentence[at],
                position=positions.cpu().numpy().astype(np.int32),
                token=stream.input_ids.cpu().numpy()[at].astype(np.int32),
                label=stream.labels.cpu().numpy()[at].astype(np.int32),
                clusters=np.stack(
                    [fitted.labels(layer, state[kept].float(), positions) for layer, state in enumerate(states)]
                ),
            )
            self._seen.setdefault(stack, []).append(counted)

    def _thinned(self, sentence: np.ndarray, stream: Stream, stack: str) -> Bool[np.ndarray, "sentence token"]:
        """Mask of the occurrences that count if there are more than requested: those with the lowest hashes."""
        hashes = hash64_array(("information", self._seed), sentence.ravel(), stream.position.cpu().numpy().ravel())
        return (hashes < np.uint64(self._share[stack] * (2.0**64 - 2.0**12))).reshape(sentence.shape)

    def merge(self, other: Any) -> None:
        for stack, facts in other._facts.items():
            own = self._facts.setdefault(stack, facts)
            if not np.array_equal(own["fingerprint"], facts["fingerprint"]):
                raise UserError(
                    f"The parts of {self.name} have different clusters of {self._model}'s {stack}: they were computed "
                    "on machines that round differently. Measure all parts on machines of one kind."
                )
        for stack, parts in other._seen.items():
            self._seen.setdefault(stack, []).extend(parts)

    def state_dict(self) -> dict[str, np.ndarray]:
        state = {}
        for stack, facts in self._facts.items():
            state |= {f"{stack}.{name}": value for name, value in facts.items()}
            if parts := self._seen.get(stack):
                state |= {f"{stack}.{k}": v for k, v in CountedTokens.together(parts).state_dict().items()}
        return state

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._facts, self._seen = {}, {}
        for stack in dict.fromkeys(name.partition(".")[0] for name in state):
            of = {name.partition(".")[2]: value for name, value in state.items() if name.startswith(f"{stack}.")}
            self._facts[stack] = {name: of.pop(name) for name in ("fingerprint", "num_clusters", "inertia")}
            if of:
                self._seen[stack] = [CountedTokens(**of)]

    def result(self) -> pd.DataFrame:
        rows = []
        for stack, facts in self._facts.items():
            counted = CountedTokens.together(parts) if (parts := self._seen.get(stack)) else None
            if counted is None or len(counted) < _LEAST_TOKENS:
                break
            rows += InformationRows(
                counted=counted,
                frequent=self._frequent[stack],
                model=self._model,
                stack=stack,
                regime=self.regime,
                clusters=int(facts["num_clusters"]),
                inertia=facts["inertia"],
            ).rows()
        if not rows:
            current_display().note(f"{self.name} of {self._model} is skipped: too few usable tokens.")
        return pd.DataFrame(rows, columns=None if rows else self.table.column_names)


class MutualInformationWithoutPosition(MutualInformation):
    """`MutualInformation` of states minus the mean state at their position.

    A position says nothing about the token, but clusters follow the position if it moves states as far as the token
    does. The means are over the states that a clustering is fitted to; positions with fewer than 20 of them share one
    mean. Adding a constant at each position changes nothing.
    """

    table: ClassVar[TableSchema] = MUTUAL_INFORMATION_WITHOUT_POSITION
    _positions: ClassVar[bool] = False


def regime_refusal(regime: Regime, model: Model) -> str | None:
    """Why a model cannot be measured in this regime, or None."""
    if regime == "clean":
        return None
    if model.task != "masked-lm":
        return f"only masked LMs read corrupted text in training (its task is {model.task})"
    return cannot_hide(model)


def most_frequent(frequencies: np.ndarray, types: int) -> Bool[np.ndarray, " id"]:
    """Mask of the token ids among the `types` most frequent; ties go to the lower id."""
    frequent = np.zeros(len(frequencies), dtype=bool)
    frequent[np.argsort(-frequencies, kind="stable")[:types]] = True
    return frequent & (frequencies > 0)
