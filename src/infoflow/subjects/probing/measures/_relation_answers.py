"""A model's answers in blanks at each layer, for every prompt and for ensembles of prompts."""

# R view (a lens and a layer), P prompt, N fact or blank, C candidate

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import length_batches
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, hash64
from infoflow.models import Model, pad_rows
from infoflow.representations import TunedLens, first_choice, logit_lens

from ._blanks import Blank, BlankWriter, Standing, standing
from ._facts import ClozeFact, Prompt

Ensemble = Literal["uniform", "best", "optimised"]
ENSEMBLES: tuple[Ensemble, ...] = ("uniform", "best", "optimised")
_STEPS, _RATE = 100, 0.1


def ensemble_scores(
    log_shares: Float[Tensor, "view prompt fact candidate"], weights: Float[Tensor, "view prompt"]
) -> Float[Tensor, "view fact candidate"]:
    r"""$$ s_c = \sum_p w_p \log P(c \mid \mathrm{prompt}_p) $$

    A prompt's normalisation is the same constant for all candidates, so it does not change which candidate is best.

    Source: [@jiang2020].
    """
    return torch.einsum("rp,rpnc->rnc", weights, log_shares)


def best_prompt(
    log_shares: Float[Tensor, "view prompt fact candidate"], gold: Int[Tensor, " fact"]
) -> Float[Tensor, "view prompt"]:
    """All weight on the prompt with the most right answers, for each layer and lens; the first one wins ties.

    Source: top-1 of [@jiang2020].
    """
    _require_facts(gold)
    right = first_choice(log_shares, gold).sum(dim=-1)
    return torch.nn.functional.one_hot(right.argmax(dim=-1), log_shares.shape[1]).float()


def optimised_weights(
    log_shares: Float[Tensor, "view prompt fact candidate"], gold: Int[Tensor, " fact"]
) -> Float[Tensor, "view prompt"]:
    r"""Weights, positive and summing to 1, that maximise the likelihood of the right objects.

    $$ \max_\theta \sum_n \log \mathrm{softmax}_c \Big( \sum_p w_p \log P(c \mid p, n) \Big)_{y_n}, \qquad
       w = \mathrm{softmax}(\theta) $$

    θ starts at zero, so weights start uniform. Weights for all layers and lenses are learned together, by 100 steps of
    Adam at a rate of 0.1.

    Source: [@jiang2020].
    """
    _require_facts(gold)
    views, prompts = log_shares.shape[:2]
    right = gold.expand(views, -1).unsqueeze(-1)
    with torch.inference_mode(False), torch.enable_grad():
        values = log_shares.clone()
        theta = torch.zeros(views, prompts, requires_grad=True)
        optimiser = torch.optim.Adam([theta], lr=_RATE, foreach=False)
        for _ in range(_STEPS if prompts > 1 else 0):
            optimiser.zero_grad()
            scores = ensemble_scores(values, theta.softmax(dim=-1))
            # Views are independent, since each has its own mean and Adam takes its own step for each.
            loss = -scores.log_softmax(dim=-1).gather(-1, right).mean(dim=1).sum()
            loss.backward()
            optimiser.step()
        return theta.detach().softmax(dim=-1)


def _require_facts(gold: Tensor) -> None:
    if len(gold) == 0:
        raise UserError("Training facts are needed to choose and weight the prompts. Got none.")


class LensLayer(NamedTuple):
    """A layer and the lens through which it is read."""

    lens: str
    layer: int


class BlankReader:
    """Log-probabilities of candidate tokens in blanks, for every lens and layer, normalised over the candidates."""

    def __init__(
        self,
        model: Model,
        candidates: Mapping[Standing, Sequence[int]],
        lenses: Mapping[str, TunedLens | None],
        tokens_per_batch: int,
    ) -> None:
        """`candidates` holds the tokens of the same words, for each kind of position where they may occur."""
        self._model, self._lenses, self._tokens_per_batch = model, lenses, tokens_per_batch
        self._candidates = {stands: torch.tensor(tokens, device=model.device) for stands, tokens in candidates.items()}
        states = len(model.anatomy.predicts.layers) + 1
        self.views = [LensLayer(lens, layer) for lens in lenses for layer in range(states)]

    def takes(self, stands: Standing) -> bool:
        """Whether every candidate is a single token in this position."""
        return stands in self._candidates

    def log_shares(self, blanks: Sequence[Blank]) -> Float[Tensor, "view blank candidate"]:
        """Log-probabilities, on the CPU."""
        result = torch.empty(len(self.views), len(blanks), len(self._candidates["space"]))
        for index in self._batches(blanks):
            batch = [blanks[i] for i in index]
            result[:, torch.from_numpy(index)] = torch.stack(list(self._read(batch)))
        if not bool(torch.isfinite(result).all()):
            raise UserError(f"{self._model.name} computes NaN or infinite logits. Check its weights and precision.")
        return result

    def _read(self, batch: Sequence[Blank]) -> Iterator[Float[Tensor, "blank candidate"]]:
        model = self._model
        ids, mask = pad_rows([blank.source for blank in batch], model.pad_token_id)
        written = [blank.decoder for blank in batch if blank.decoder is not None]
        decoder_ids = pad_rows(written, model.pad_token_id)[0] if written else None
        predicting = ids if decoder_ids is None else decoder_ids
        positions = torch.zeros(predicting.shape, dtype=torch.bool)
        positions[torch.arange(len(batch)), torch.tensor([blank.place for blank in batch])] = True
        candidates = torch.stack([self._candidates[blank.stands] for blank in batch])
        for lens in self._lenses.values():
            for reading in logit_lens(model, ids, mask, decoder_ids, positions=positions, lens=lens):
                yield reading.logits.gather(1, candidates).float().log_softmax(dim=-1).cpu()

    def _batches(self, blanks: Sequence[Blank]) -> Iterator[np.ndarray]:
        lengths = np.array([max(len(blank.source), len(blank.decoder or ())) for blank in blanks])
        if self._model.pads:
            yield from length_batches(lengths, self._tokens_per_batch)
            return
        shapes = np.array([(len(blank.source), len(blank.decoder or ())) for blank in blanks])
        for shape in np.unique(shapes, axis=0):
            alike = np.flatnonzero((shapes == shape).all(axis=1))
            for part in length_batches(lengths[alike], self._tokens_per_batch):
                yield alike[part]


_SCORE_BYTES = 1 << 28  # log-probabilities held at a time


class Asking(NamedTuple):
    """Which prompts are combined, and how."""

    family: str
    ensemble: Ensemble


@dataclass(kw_only=True, slots=True, eq=False)
class RelationAnswers:
    """A model's answers to the facts of one relation."""

    relation: str
    right: dict[Asking, Float[np.ndarray, "view block"]]  # number of facts answered with their object
    blind: dict[Asking, Float[np.ndarray, " view"]]
    """Share of facts that the same prompts answer without the subject; NaN where that is impossible."""
    prompts: dict[Asking, int]
    counts: Float[np.ndarray, " block"]
    majority: Float[np.ndarray, " block"]  # number of facts whose object is the most frequent one
    left_out: int = 0  # number of facts whose sentence the model cannot read
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
        """The model's answers; None if no prompt or no fact can be used."""
        usable = [prompt for prompt in prompts if self._takes(prompt.template)]
        unasked = Counter(prompt.family for prompt in prompts if not self._takes(prompt.template))
        if not usable:
            return None
        facts_of, blanks = self._blanks(usable, facts)
        if not facts_of:
            return None
        weights = self._weights(usable, train, askings)
        result = RelationAnswers(
            relation=facts[0].relation,
            right={asking: np.zeros((len(self._reader.views), NUM_BLOCKS)) for asking in weights},
            blind=self._blind(usable, facts_of, weights),
            prompts={asking: len(_of_family(usable, asking.family)) for asking in weights},
            counts=np.bincount(_blocks(facts_of), minlength=NUM_BLOCKS).astype(np.float64),
            majority=_majority(facts_of),
            left_out=len(facts) - len(facts_of),
            unasked=dict(unasked),
        )
        for part in self._parts(len(facts_of), len(usable)):
            scores, gold, blocks = self._scores(blanks[part]), self._golds(facts_of[part]), _blocks(facts_of[part])
            for asking, weight in weights.items():
                hits = first_choice(ensemble_scores(scores, weight), gold).numpy()
                np.add.at(result.right[asking].T, blocks, hits.T.astype(np.float64))
        return result

    def _takes(self, template: str) -> bool:
        return self._writer.takes(template) and self._reader.takes(standing(template))

    def _blanks(
        self, prompts: Sequence[Prompt], facts: Sequence[ClozeFact]
    ) -> tuple[list[ClozeFact], list[list[Blank]]]:
        """The facts that every prompt can query, with their questions."""
        facts_of, blanks = [], []
        for fact in facts:
            row = [self._writer.blank(prompt.template, fact.subject) for prompt in prompts]
            found = [blank for blank in row if blank is not None]
            if len(found) == len(row):
                facts_of.append(fact)
                blanks.append(found)
        return facts_of, blanks

    def _scores(self, blanks: Sequence[Sequence[Blank]]) -> Float[Tensor, "view prompt fact candidate"]:
        flat = self._reader.log_shares([blank for row in blanks for blank in row])
        views, num = flat.shape[0], len(blanks)
        return flat.reshape(views, num, -1, self._num_candidates).transpose(1, 2)

    def _weights(
        self, prompts: Sequence[Prompt], train: Sequence[ClozeFact], askings: Sequence[Asking]
    ) -> dict[Asking, Float[Tensor, "view prompt"]]:
        """Weights for each `Asking` that has prompts and, if weights are learned, training facts."""
        views, scores, gold = len(self._reader.views), None, None
        if train and any(asking.ensemble != "uniform" for asking in askings):
            most = next(self._parts(len(train), len(prompts)))
            facts_of, blanks = self._blanks(prompts, train[most])
            if facts_of:
                scores, gold = self._scores(blanks), self._golds(facts_of)
        result = {}
        for asking in askings:
            index = _of_family(prompts, asking.family)
            if not index or (asking.ensemble != "uniform" and scores is None):
                continue
            if asking.ensemble == "uniform" or scores is None or gold is None:
                own = torch.full((views, len(index)), 1 / len(index))
            else:
                learn = best_prompt if asking.ensemble == "best" else optimised_weights
                own = learn(scores[:, index], gold)
            result[asking] = torch.zeros(views, len(prompts)).index_copy(1, torch.tensor(index), own)
        return result

    def _blind(
        self, prompts: Sequence[Prompt], facts: Sequence[ClozeFact], weights: Mapping[Asking, Tensor]
    ) -> dict[Asking, np.ndarray]:
        """Accuracy without the subject, where a prompt has the same answer for all facts."""
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


TOGETHER = "together"  # the prompts of all families combined


def _of_family(prompts: Sequence[Prompt], family: str) -> list[int]:
    return [index for index, prompt in enumerate(prompts) if family in (prompt.family, TOGETHER)]


def _blocks(facts: Sequence[ClozeFact]) -> Int[np.ndarray, " fact"]:
    """Bootstrap blocks: all facts about one subject are drawn together."""
    return block_of(np.array([hash64("subject", fact.subject) for fact in facts], dtype=np.uint64))


def _majority(facts: Sequence[ClozeFact]) -> Float[np.ndarray, " block"]:
    counts = Counter(fact.object for fact in facts)
    favourite = min(counts, key=lambda name: (-counts[name], name))
    return np.bincount(_blocks([fact for fact in facts if fact.object == favourite]), minlength=NUM_BLOCKS) * 1.0
