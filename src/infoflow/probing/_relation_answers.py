"""The facts of one relation under every prompt: right answers per bootstrap block, with and without the subject."""

# R view (a lens and a layer), P prompt, N fact, C candidate

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, block_of, hash64

from ._blank_reader import BlankReader
from ._blanks import Blank, BlankWriter
from ._facts import ClozeFact, Prompt
from ._first_choice import first_choice
from ._object_tokens import standing
from ._prompt_ensembles import Ensemble, best_prompt, ensemble_scores, optimised_weights, uniform_weights

_SCORE_BYTES = 1 << 28  # log-probabilities held at a time


class Asking(NamedTuple):
    """Which prompts are combined, and how."""

    family: str
    ensemble: Ensemble


@dataclass(kw_only=True, slots=True, eq=False)
class RelationAnswers:
    """A model's answers to the facts of one relation."""

    relation: str
    right: dict[Asking, Float[np.ndarray, "view block"]]
    """Number of facts answered with their object."""
    blind: dict[Asking, Float[np.ndarray, " view"]]
    """Share of facts that the same prompts answer without the subject; NaN where that is impossible."""
    prompts: dict[Asking, int]
    counts: Float[np.ndarray, " block"]
    majority: Float[np.ndarray, " block"]
    """Number of facts whose object is the most frequent one."""
    left_out: int = 0
    """Number of facts whose sentence the model cannot read."""
    unasked: dict[str, int] = field(default_factory=dict)
    """Number of templates that this model cannot answer, by family."""


class RelationAsker:
    """Collects a model's answers, relation by relation."""

    def __init__(self, writer: BlankWriter, reader: BlankReader, gold: Mapping[str, int], num_candidates: int) -> None:
        self._writer, self._reader, self._gold, self._num_candidates = writer, reader, gold, num_candidates

    def ask(
        self,
        prompts: Sequence[Prompt],
        facts: Sequence[ClozeFact],
        train: Sequence[ClozeFact],
        askings: Sequence[Asking],
    ) -> RelationAnswers | None:
        """The answers; None if no prompt or no fact can be used."""
        usable = [prompt for prompt in prompts if self._takes(prompt.template)]
        unasked = Counter(prompt.family for prompt in prompts if not self._takes(prompt.template))
        if not usable:
            return None
        asked, blanks = self._blanks(usable, facts)
        if not asked:
            return None
        weights = self._weights(usable, train, askings)
        result = RelationAnswers(
            relation=facts[0].relation,
            right={asking: np.zeros((len(self._reader.views), NUM_BLOCKS)) for asking in weights},
            blind=self._blind(usable, asked, weights),
            prompts={asking: len(_of_family(usable, asking.family)) for asking in weights},
            counts=np.bincount(_blocks(asked), minlength=NUM_BLOCKS).astype(np.float64),
            majority=_majority(asked),
            left_out=len(facts) - len(asked),
            unasked=dict(unasked),
        )
        for part in self._parts(len(asked), len(usable)):
            scores, gold, blocks = self._scores(blanks[part]), self._golds(asked[part]), _blocks(asked[part])
            for asking, weight in weights.items():
                hits = first_choice(ensemble_scores(scores, weight), gold).numpy()
                np.add.at(result.right[asking].T, blocks, hits.T.astype(np.float64))
        return result

    def _takes(self, template: str) -> bool:
        return self._writer.takes(template) and self._reader.takes(standing(template))

    def _blanks(
        self, prompts: Sequence[Prompt], facts: Sequence[ClozeFact]
    ) -> tuple[list[ClozeFact], list[list[Blank]]]:
        """The facts that every prompt can ask for, with their questions."""
        asked, blanks = [], []
        for fact in facts:
            row = [self._writer.blank(prompt.template, fact.subject) for prompt in prompts]
            found = [blank for blank in row if blank is not None]
            if len(found) == len(row):
                asked.append(fact)
                blanks.append(found)
        return asked, blanks

    def _scores(self, blanks: Sequence[Sequence[Blank]]) -> Float[Tensor, "view prompt fact candidate"]:
        flat = self._reader.log_shares([blank for row in blanks for blank in row])
        views, num = flat.shape[0], len(blanks)
        return flat.reshape(views, num, -1, self._num_candidates).transpose(1, 2)

    def _weights(
        self, prompts: Sequence[Prompt], train: Sequence[ClozeFact], askings: Sequence[Asking]
    ) -> dict[Asking, Float[Tensor, "view prompt"]]:
        """Weights for each `Asking` that has prompts and, if it is learned, training facts."""
        views, scores, gold = len(self._reader.views), None, None
        if train and any(asking.ensemble != "uniform" for asking in askings):
            most = next(self._parts(len(train), len(prompts)))
            asked, blanks = self._blanks(prompts, train[most])
            if asked:
                scores, gold = self._scores(blanks), self._golds(asked)
        result = {}
        for asking in askings:
            index = _of_family(prompts, asking.family)
            if not index or (asking.ensemble != "uniform" and scores is None):
                continue
            if asking.ensemble == "uniform" or scores is None or gold is None:
                own = uniform_weights(views, len(index))
            else:
                learn = best_prompt if asking.ensemble == "best" else optimised_weights
                own = learn(scores[:, index], gold)
            result[asking] = torch.zeros(views, len(prompts)).index_copy(1, torch.tensor(index), own)
        return result

    def _blind(
        self, prompts: Sequence[Prompt], facts: Sequence[ClozeFact], weights: Mapping[Asking, Tensor]
    ) -> dict[Asking, np.ndarray]:
        """Accuracy without the subject: such a prompt has one answer for all facts."""
        row = [self._writer.blank(prompt.template, None) for prompt in prompts]
        readable = [index for index, blank in enumerate(row) if blank is not None]
        result = {asking: np.full(len(self._reader.views), np.nan) for asking in weights}
        if not readable:
            return result
        scores, gold = self._scores([[blank for blank in row if blank is not None]]), self._golds(facts)
        for asking, weight in weights.items():
            if set(_of_family(prompts, asking.family)) <= set(readable):
                answer = first_choice(ensemble_scores(scores, weight[:, readable]), gold)
                result[asking] = answer.double().mean(dim=1).numpy()
        return result

    def _golds(self, facts: Sequence[ClozeFact]) -> Int[Tensor, " fact"]:
        return torch.tensor([self._gold[fact.object] for fact in facts])

    def _parts(self, num_facts: int, num_prompts: int) -> Iterator[slice]:
        per_fact = 4 * len(self._reader.views) * num_prompts * self._num_candidates
        size = max(1, _SCORE_BYTES // per_fact)
        return (slice(start, start + size) for start in range(0, num_facts, size))


TOGETHER = "together"
"""The prompts of all families combined."""


def _of_family(prompts: Sequence[Prompt], family: str) -> list[int]:
    return [index for index, prompt in enumerate(prompts) if family in (prompt.family, TOGETHER)]


def _blocks(facts: Sequence[ClozeFact]) -> Int[np.ndarray, " fact"]:
    """Bootstrap blocks: all facts about one subject are drawn together."""
    return block_of(np.array([hash64("subject", fact.subject) for fact in facts], dtype=np.uint64))


def _majority(facts: Sequence[ClozeFact]) -> Float[np.ndarray, " block"]:
    counts = Counter(fact.object for fact in facts)
    favourite = min(counts, key=lambda name: (-counts[name], name))
    return np.bincount(_blocks([fact for fact in facts if fact.object == favourite]), minlength=NUM_BLOCKS) * 1.0
