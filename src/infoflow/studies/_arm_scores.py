"""What an arm of retrieval finds, what it makes of that, and what the language costs it: rows of `retrieval_scores`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.corpus import Fact
from infoflow.evidence import decoded_answers, fact_blocks, fact_inputs, own_log_probabilities, question_candidates
from infoflow.foundation import NUM_BLOCKS, Scale, block_of, hash64, stream
from infoflow.objectives import UNSUPERVISED, RetrievalLM
from infoflow.results import ratio_estimate
from infoflow.retrieval import (
    NULL,
    RETRIEVAL_SCORES,
    Candidates,
    Library,
    RetrievalModel,
    marginal_log_likelihood,
    retrieval_scores,
)

from ._read_world import ReadWorld
from ._training_accuracy import spread

_BATCH, _DEPTH = 128, 20
_CUTS = (1, 2, 4, 20)
_PASSAGES = (1, 2, 4, 8)  # for dates
_MOST_FACTS, _MOST_LANGUAGE = 600, 400
_MOST_DECODED = 64  # facts, in two wordings each
_COURSE = {"trained": ("trained", "changed"), "held out": ("held out",)}
_SEARCHES = ("bm25", "frozen", "learned")


class _Asked(NamedTuple):
    """Questions about facts as a retrieval model reads them."""

    facts: Sequence[Fact]  # of each question
    ids: Tensor  # [CLS] question [SEP]
    mask: Tensor
    labels: Tensor
    gold: np.ndarray


class _Read(NamedTuple):
    """What a model made of questions, on the CPU in float64."""

    log_prior: Tensor  # (question, candidate)
    logs: Tensor  # (question, candidate, target)
    targets: Tensor  # bool (question, target)
    there: Tensor  # bool (question, candidate)


@final
@dataclass(frozen=True, eq=False)
class ArmScores:
    """One arm as it is; `rows` are what is known of it.

    | metric              | queries         | value                                             | control    |
    |---------------------|-----------------|---------------------------------------------------|------------|
    | hit, recall, mrr    | facts, held out | of the first k passages                           | at random  |
    | collapse            | facts, held out | see `retrieval_scores`                            | at random  |
    | null_prior          | facts, language | prior of the empty passage                        | uniform    |
    | prior_entropy       | facts, language | of candidates, in nats                            | uniform    |
    | utility             | facts           | retrieval utility of the mean passage, in nats    | 0          |
    | utility_marginal    | facts           | of all that was found, in nats                    | 0          |
    | log_likelihood      | facts           | of the answer, in nats                            | vocabulary |
    | p1                  | dates           | right answers with k passages                     | at random  |
    | posterior_entropy_j | dates           | of candidates given the j-th token, in nats       | shuffled   |
    | exact_match         | facts           | share that a reader which writes spells rightly   | a guess    |
    | exact_match_fast    | facts           | the same by RAG-Sequence's fast decoding          | a guess    |
    | loss                | language        | nats of a masked word, unread, without a passage  | vocabulary |

    Systems: `own` is the model's own search; beside it `bm25`, `frozen` (as the retriever began), and of a learned one
    the index as it was at the start of training (`own, first index`) and the edited index (`own, edited index`, of
    questions about changed facts and later entities).
    """

    model: RetrievalModel  # in evaluation mode, with an index of its own weights
    objective: RetrievalLM
    world: ReadWorld
    unread: ReadWorld  # another world, whose sentences of the language no model has read
    first: RetrievalModel | None  # as it began, where it has a retriever

    def table(self) -> pd.DataFrame:
        """All rows, without key columns."""
        parts = list(self._found()) if self.model.source in _SEARCHES else []
        rows = list(self._language())
        if self.model.source != "none":
            rows += self._made()
        if self.model.source in _SEARCHES:
            rows += self._dates()
        if self.model.writes:
            rows += self._written()
        return RETRIEVAL_SCORES.conform(pd.concat([*parts, pd.DataFrame(rows)], ignore_index=True))

    def course(self) -> pd.DataFrame:
        """Rows of `RETRIEVAL_COURSE`, without the update: of the same questions at every one."""
        rows = []
        for name, kinds in _COURSE.items():
            facts = _some(self.world.world.of_kind(*kinds))
            if not facts:
                continue
            asked = self._asked(facts)
            blocks, guess = fact_blocks(asked.facts), self._guess(asked)
            read = self._read(asked, self.objective.k)
            likely = self._marginal(read)
            rows.append(own_row(name, "p1", self._right(facts, self.objective.k, False), blocks, guess, scale="share"))
            rows.append(own_row(name, "log_likelihood", likely, blocks, self._unlikely(read)))
            if self.model.source != "none":
                without = torch.where(read.targets, read.logs[:, -1], 0.0).sum(dim=1).numpy()
                rows.append(own_row(name, "utility", likely - without, blocks, 0.0))
        found = pd.DataFrame(rows).rename(columns={"queries": "facts"})
        return found.drop(columns=["system", "k"])

    def _guess(self, asked: _Asked) -> float:
        """Right answers of a guess among the objects of each question's relation."""
        return float(np.mean([1 / self.world.world.config.choices(fact.relation) for fact in asked.facts]))

    def _unlikely(self, read: _Read) -> float:
        """Log-likelihood of an answer if all words were alike, in nats."""
        return -read.targets.sum(dim=1).double().mean().item() * float(np.log(self.world.vocabulary.size))

    # -- what is found ------------------------------------------------------------------------------------------------

    def _found(self) -> Iterator[pd.DataFrame]:
        world = self.world.world
        library = self._library
        for name, kinds in (("facts", ("trained", "changed", "held out")), ("held out", ("held out",))):
            facts = _some(world.of_kind(*kinds))
            asked = self._asked(facts)
            systems = {"own": self._ranked(self.model, asked, library)}
            if self.model.source != "bm25":
                systems["bm25"] = self._by_words(asked, library)
            if self.first is not None and self.model.source == "learned":
                systems["frozen"] = self._ranked(self.first, asked, self._first_library)
                systems["own, first index"] = self._ranked(self.model, asked, self._first_library)
            texts = [str(fact.number) for fact in asked.facts]
            relevant = [[world.gold(fact)] for fact in asked.facts]
            yield retrieval_scores(systems, relevant, texts, len(library), _CUTS, name)
        yield from self._edited()

    def _edited(self) -> Iterator[pd.DataFrame]:
        world = self.world.world
        facts = _some(world.of_kind("changed", "later"))
        if not facts:
            return
        library = self.world.passage_library(edited=True)
        if self.model.retriever is not None:
            library.dense = library.embed(self.model.retriever.passages)
        asked = self._asked(facts)
        relevant = [[world.gold(fact, edited=True)] for fact in asked.facts]
        ranked = {"own, edited index": self._ranked(self.model, asked, library)}
        texts = [str(fact.number) for fact in asked.facts]
        found = retrieval_scores(ranked, relevant, texts, len(library), _CUTS, "changed and later")
        yield found[~found["system"].isin(["oracle", "random"])]

    def _ranked(self, model: RetrievalModel, asked: _Asked, library: Library) -> np.ndarray:
        """The passages of each question, best first."""
        if model.source == "bm25":
            return self._by_words(asked, library)
        assert model.retriever is not None
        with torch.no_grad():
            vectors = torch.cat(
                [model.retriever.queries(asked.ids[rows], asked.mask[rows]) for rows in _slices(len(asked.facts))]
            )
        return library.by_vectors(vectors, min(_DEPTH, len(library)), [()] * len(vectors)).ids

    def _by_words(self, asked: _Asked, library: Library) -> np.ndarray:
        special = library.vocabulary.is_special
        words = [row[~special[row]] for row in asked.ids.cpu().numpy()]
        return library.by_words(words, min(_DEPTH, len(library)), [()] * len(words)).ids

    @property
    def _library(self) -> Library:
        assert self.model.passage_library is not None
        return self.model.passage_library

    @cached_property
    def _first_library(self) -> Library:
        assert self.first is not None
        assert self.first.passage_library is not None
        return self.first.passage_library

    # -- what is made of it -------------------------------------------------------------------------------------------

    def _made(self) -> Iterator[dict[str, Any]]:
        asked = self._asked(_some(self.world.world.of_kind("trained", "changed", "held out")))
        read = self._read(asked, self.objective.k)
        blocks = fact_blocks(asked.facts)
        yield from self._priors("facts", read, blocks)
        sums = torch.where(read.targets[:, None], read.logs, 0.0).sum(dim=2)
        own = read.there[:, :-1].any(dim=1).numpy()
        gains = torch.where(read.there[:, :-1], sums[:, :-1] - sums[:, -1:], 0.0).sum(dim=1)
        mean = (gains / read.there[:, :-1].sum(dim=1).clamp_min(1)).numpy()
        likely = self._marginal(read)
        yield own_row("facts", "utility", mean[own], blocks[own], 0.0)
        yield own_row("facts", "utility_marginal", (likely - sums[:, -1].numpy())[own], blocks[own], 0.0)
        yield own_row("facts", "log_likelihood", likely, blocks, self._unlikely(read))

    def _written(self) -> Iterator[dict[str, Any]]:
        """Decoded over all words, with the passage summed out."""
        facts = _some(self.world.world.of_kind("trained", "changed", "held out"))
        facts = [facts[place] for place in spread(len(facts), _MOST_DECODED)]
        world, tokenizer, level = self.world.world, self.world.tokenizer, self.objective.level
        options: Any = {"k": self.objective.k, "library": self.model.passage_library}
        found = question_candidates(self.model, world, tokenizer, facts, **options)
        asked = self._asked(facts)
        names = {"exact_match": "thorough"} | ({"exact_match_fast": "fast"} if level == "sequence" else {})
        for metric, decoding in names.items():
            options = {"level": level, "decoding": decoding}
            right = decoded_answers(self.model, world, tokenizer, facts, found, **options).astype(float)
            yield own_row("facts", metric, right, fact_blocks(asked.facts), self._guess(asked), scale="share")

    def _priors(self, queries: str, read: _Read, blocks: np.ndarray) -> Iterator[dict[str, Any]]:
        prior = read.log_prior.exp()
        num = read.there.sum(dim=1).double()
        entropy = torch.special.entr(prior).sum(dim=1).numpy()
        yield own_row(queries, "null_prior", prior[:, -1].numpy(), blocks, float((1 / num).mean()), scale="share")
        yield own_row(queries, "prior_entropy", entropy, blocks, float(num.log().mean()), scale="positive")

    def _dates(self) -> Iterator[dict[str, Any]]:
        world = self.world.world
        dates = [fact for fact in world.of_kind("trained", "changed", "held out") if _is_date(fact, world.config)]
        if not dates:
            return
        asked = self._asked(chosen := _some(dates))
        blocks = fact_blocks(asked.facts)
        for k in _PASSAGES:
            if k > len(self._library):
                continue
            right, guess = (self._right(chosen, k, at_random) for at_random in (False, True))
            yield own_row("dates", "p1", right, blocks, float(guess.mean()), k=k, scale="share")
        read = self._read(asked, self.objective.k)
        entropies = [self._posterior_entropy(read, place) for place in range(read.logs.shape[2])]
        shuffled = stream("answer-order").permuted(np.stack(entropies), axis=0)  # the tokens of each answer
        for place, (entropy, control) in enumerate(zip(entropies, shuffled, strict=True), start=1):
            name = f"posterior_entropy_{place}"
            yield own_row("dates", name, entropy, blocks, float(control.mean()), scale="positive")

    def _posterior_entropy(self, read: _Read, place: int) -> np.ndarray:
        posterior = (read.log_prior + read.logs[:, :, place]).softmax(dim=1)
        return torch.special.entr(posterior).sum(dim=1).numpy()

    def _right(self, facts: Sequence[Fact], k: int, at_random: bool) -> np.ndarray:
        """Whether each question is answered rightly, the passage summed out as in training."""
        world, tokenizer = self.world.world, self.world.tokenizer
        found = question_candidates(self.model, world, tokenizer, facts, k=k, library=self.model.passage_library)
        if at_random:
            found = replace(found, ids=self._drawn(found.ids))
        logs = own_log_probabilities(self.model, world, tokenizer, facts, found, level=self.objective.level)
        answers = [question.fact for question in world.questions(facts)]
        return (logs.argmax(axis=1) == [world.facts[one].object for one in answers]).astype(np.float64)

    def _drawn(self, ids: np.ndarray) -> np.ndarray:
        """Other passages in place of those found; the empty one stays."""
        drawn = ids.copy()
        for row, one in enumerate(drawn):
            others = stream("random-candidates", row).choice(len(self._library), len(one) - 1, replace=False)
            one[:-1] = np.where(one[:-1] == NULL, NULL, others)
        return drawn

    def _marginal(self, read: _Read) -> np.ndarray:
        parts = {"candidates": read.there, "tokens": read.targets}
        return marginal_log_likelihood(read.log_prior, read.logs, level=self.objective.level, **parts).numpy()

    @torch.no_grad()
    def _read(self, asked: _Asked, k: int) -> _Read:
        parts = []
        for rows in _slices(len(asked.facts)):
            ids, mask, labels = asked.ids[rows], asked.mask[rows], asked.labels[rows]
            choice = self._choice(asked, rows, k)
            prior = self._log_prior(ids, mask, choice)
            logs, targets = self.model.log_likelihoods(ids, mask, labels, choice)
            parts.append((prior, logs.double().cpu(), targets.cpu(), torch.from_numpy(choice.there)))
        return _Read(*(torch.cat(one) for one in zip(*parts, strict=True)))

    def _log_prior(self, ids: Tensor, mask: Tensor, choice: Candidates) -> Tensor:
        scores = self.model.logits(ids, mask, choice).double().cpu()
        return scores.masked_fill(~torch.from_numpy(choice.there), -torch.inf).log_softmax(dim=1)

    def _choice(self, asked: _Asked, rows: slice, k: int) -> Candidates:
        gold = asked.gold[rows]
        draws = np.array([hash64("own-candidates", 0, fact.number) % (1 << 62) for fact in asked.facts[rows]])
        none = np.zeros(len(gold), dtype=bool)
        return self.model.choose(asked.ids[rows], asked.mask[rows], k, gold, draws, [()] * len(gold), none)

    # -- the language -------------------------------------------------------------------------------------------------

    def _language(self) -> Iterator[dict[str, Any]]:
        """Sentences that no model has read, one word of each hidden."""
        source: Any = self.unread.queries.source
        looked = spread(len(source.lengths), 16 * _MOST_LANGUAGE).tolist()
        rows = [row for row in looked if not len(source.example(row).labels["spans"])]
        if not rows:
            return
        asking = replace(self.objective.for_evaluation(), masking="salient", null_share=0.0, null_share_only=False)
        chosen = np.array(rows)[spread(len(rows), _MOST_LANGUAGE)]
        losses, priors, blocks = [], [], block_of(source.sentence_ids[chosen])
        for part in np.array_split(chosen, max(len(chosen) // _BATCH, 1)):
            batch = self.unread.queries.batch(asking, part, ("language",), 0).to(self.model.device)
            ids, mask, labels = batch.input_ids, batch.attention_mask, batch.labels
            null = np.full((len(part), 1), NULL)
            alone = Candidates(ids=null, there=np.ones_like(null, dtype=bool), scores=np.zeros(null.shape))
            with torch.no_grad():
                logs, _ = self.model.log_likelihoods(ids, mask, labels, alone)
                losses.append(-logs[:, 0, 0].double().cpu().numpy())
                if self.model.source in _SEARCHES:
                    priors.append(self._prior_of(batch))
        yield own_row(
            "language", "loss", np.concatenate(losses), blocks, np.log(self.unread.vocabulary.size), scale="positive"
        )
        if priors:
            logs, there = (torch.cat(one) for one in zip(*priors, strict=True))
            nothing = torch.zeros((*logs.shape, 0)), torch.zeros((len(logs), 0), dtype=torch.bool)
            yield from self._priors("language", _Read(logs, *nothing, there), blocks)

    def _prior_of(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Of what the model finds for sentences, for which no passage helps."""
        num = len(batch.input_ids)
        nothing = np.zeros(num, dtype=bool)
        choice = self.model.choose(
            batch.input_ids,
            batch.attention_mask,
            self.objective.k,
            np.full(num, NULL),
            np.zeros(num, dtype=np.int64),
            [()] * num,
            nothing,
        )
        return self._log_prior(batch.input_ids, batch.attention_mask, choice), torch.from_numpy(choice.there)

    # -- questions ----------------------------------------------------------------------------------------------------

    def _asked(self, facts: Sequence[Fact]) -> _Asked:
        """In the wordings that are kept for testing."""
        world, device = self.world.world, self.model.device
        inputs = fact_inputs(world, self.world.tokenizer, facts, "none", limit=self.world.positions)
        real = (inputs.attention_mask == 1) & (inputs.token_type_ids == 0)
        longest = int(real.sum(axis=1).max())
        ids, mask = inputs.input_ids[:, :longest], real[:, :longest].astype(np.int64)
        labels = np.full_like(ids, UNSUPERVISED)
        answers = inputs.candidates[np.arange(len(inputs)), inputs.answers]
        for row, (places, words) in enumerate(zip(inputs.masks, answers, strict=True)):
            labels[row, places[places >= 0]] = words[places >= 0]
        arrays = (torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in (ids, mask, labels))
        gold = np.array([world.gold(fact) for fact in inputs.facts])
        return _Asked(inputs.facts, *arrays, gold=gold)


def _some(facts: Sequence[Fact]) -> list[Fact]:
    """At most so many, the same ones for every model."""
    chosen = sorted(facts, key=lambda one: hash64("scored", one.number))[: _MOST_FACTS // 2]
    return sorted(chosen, key=lambda one: one.number)


def _is_date(fact: Fact, config: Any) -> bool:
    return fact.relation in config.date_relations


def _slices(num: int) -> Iterator[slice]:
    yield from (slice(start, min(start + _BATCH, num)) for start in range(0, num, _BATCH))


def own_row(
    queries: str,
    metric: str,
    values: np.ndarray,
    blocks: np.ndarray,
    baseline: float,
    k: int = 0,
    scale: Scale = "any",
) -> dict[str, Any]:
    """One number about what the model does itself."""
    counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(float)
    found = ratio_estimate(np.bincount(blocks, values, NUM_BLOCKS), counts, baseline, scale=scale)
    return {"system": "own", "queries": queries, "metric": metric, "k": k, **found}
