"""Rows of `retrieval_scores`: what a retrieval model finds, how it then answers, and its loss on language."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.corpus import Fact
from infoflow.foundation import hash64, stream
from infoflow.objectives import UNSUPERVISED
from infoflow.results import RETRIEVAL_SCORES

from ..measures import decoded_answers, fact_blocks, fact_inputs, own_log_probabilities, question_candidates
from ..measures._tables import EVERY_WEIGHT, fact_groups
from ..models import NULL, Library, RetrievalModel, retrieval_scores, score_row
from ..objectives._retrieval_lm import RetrievalLM
from ._question_reading import SEARCHES, MaskedQuestions, QuestionReading, Read, priors, unlikely, without_passage
from ._reading_matter import ReadWorld, spread, text_blocks

_CUTS = (1, 2, 4, 20)
_PASSAGES = (1, 2, 4, 8)  # numbers of passages, for dates
_MOST_FACTS, _MOST_LANGUAGE = 600, 400
_MOST_AT_ONCE = 128  # sentences of the language
_MOST_DECODED = 64  # facts, each in two wordings
_COURSE = {"trained": ("trained", "changed"), "held out": ("held out",)}


@final
@dataclass(frozen=True, eq=False)
class ArmScores:
    """Scores of one retrieval model.

    | metric              | queries         | value                                             | control    |
    |---------------------|-----------------|---------------------------------------------------|------------|
    | hit, recall, mrr    | facts, held out | of the gold passage in the first k passages       | at random  |
    | collapse            | facts, held out | see `retrieval_scores`                            | at random  |
    | nothing_found       | facts, held out | share of questions with only the empty passage    | at random  |
    | null_prior          | facts, language | prior of the empty passage                        | uniform    |
    | prior_entropy       | facts, language | of candidates, in nats                            | uniform    |
    | utility             | facts           | retrieval utility of the mean passage, in nats    | 0          |
    | utility_marginal    | facts           | of all retrieved passages, in nats                | 0          |
    | log_likelihood      | facts           | of the answer, in nats                            | vocabulary |
    | p1                  | dates           | right answers with k passages                     | at random  |
    | posterior_entropy_j | dates           | of candidates given the j-th token, in nats       | shuffled   |
    | exact_match         | facts           | share that a generating reader spells correctly   | a guess    |
    | exact_match_fast    | facts           | the same by RAG-Sequence's fast decoding          | a guess    |
    | loss                | language        | nats of a masked word, without a passage          | vocabulary |

    Systems: `own` is the model's own search. Its controls are `bm25` and `frozen` (the retriever before training), and
    for a learned retriever also the index from the start of training (`own, first index`) and the edited index (`own,
    edited index`, for questions about changed facts and later entities). Rows of `facts` also exist for trained and
    changed facts, and for each exposure of these, as queries "trained facts", "trained facts, weight 16" and so on.
    `language` is sentences that no model has read.
    """

    model: RetrievalModel  # in evaluation mode, with an index built from its own weights
    objective: RetrievalLM
    world: ReadWorld
    unread: ReadWorld  # another world, whose language sentences no model has read
    first: RetrievalModel | None  # the model before training, if it has a retriever
    before: ReadWorld | None = None  # the world on which its reader was pretrained, if any
    edited: Library | None = None  # library of the edited passages, shared with other measures; None: built here

    def table(self) -> pd.DataFrame:
        """All rows, without key columns."""
        parts = list(self._found()) if self.model.source in SEARCHES else []
        rows = list(self._language())
        if self.model.source != "none":
            rows += self._made()
        if self.model.source in SEARCHES:
            rows += self._dates()
        if self.model.writes:
            rows += self._written()
        return RETRIEVAL_SCORES.conform(pd.concat([*parts, pd.DataFrame(rows)], ignore_index=True))

    def course(self) -> pd.DataFrame:
        """Rows of `RETRIEVAL_COURSE` without the update, on the same questions at every update."""
        rows = []
        for name, kinds in _COURSE.items():
            facts = _some(self.world.world.of_kind(*kinds))
            if not facts:
                continue
            masked, their_facts = self._masked(facts)
            blocks, guess = fact_blocks(their_facts), self._guess(their_facts)
            read = self._reading.read(masked)
            likely = self._reading.marginal(read)
            rows.append(
                score_row(name, "p1", self._right(facts, self.objective.k, False), blocks, guess, scale="share")
            )
            rows.append(score_row(name, "log_likelihood", likely, blocks, unlikely(read, self.world.vocabulary.size)))
            if self.model.source != "none":
                without = torch.where(read.targets, read.logs[:, -1], 0.0).sum(dim=1).numpy()
                rows.append(score_row(name, "utility", likely - without, blocks, 0.0))
        found = pd.DataFrame(rows).rename(columns={"queries": "facts"})
        return found.drop(columns=["system", "k"])

    @cached_property
    def _reading(self) -> QuestionReading:
        return QuestionReading(self.model, self.objective)

    def _guess(self, facts: Sequence[Fact]) -> float:
        return float(np.mean([1 / self.world.world.config.choices(fact.relation) for fact in facts]))

    # -- retrieval ----------------------------------------------------------------------------------------------------

    def _found(self) -> Iterator[pd.DataFrame]:
        world, library = self.world.world, self._library
        first = self.first if self.model.source == "learned" else None
        for name, kinds in (("facts", ("trained", "changed", "held out")), ("held out", ("held out",))):
            facts = _some(world.of_kind(*kinds))
            masked, their_facts = self._masked(facts)
            systems = self._reading.systems(masked, library, first)
            if first is not None and first.passage_library is not None:
                systems["own, first index"] = self._reading.ranked(masked, first.passage_library)
            texts = [str(fact.number) for fact in their_facts]
            relevant = [[world.gold(fact)] for fact in their_facts]
            yield retrieval_scores(systems, relevant, texts, len(library), _CUTS, name)
            for group, rows in _exposures(their_facts) if name == "facts" else ():
                own = {system: ranking[rows] for system, ranking in systems.items()}
                asked_of, texts_of = ([column[row] for row in rows] for column in (relevant, texts))
                found = retrieval_scores(own, asked_of, texts_of, len(library), _CUTS, group)
                yield found[~found["system"].isin(["oracle", "random"])]
        yield from self._edited()

    def _edited(self) -> Iterator[pd.DataFrame]:
        world = self.world.world
        facts = _some(world.of_kind("changed", "later"))
        if not facts:
            return
        library = self.world.passage_library(edited=True) if self.edited is None else self.edited
        if self.model.retriever is not None and library.dense is None:
            library.dense = library.embed(self.model.retriever.passages)
        masked, their_facts = self._masked(facts)
        relevant = [[world.gold(fact, edited=True)] for fact in their_facts]
        ranked = {"own, edited index": self._reading.ranked(masked, library)}
        texts = [str(fact.number) for fact in their_facts]
        found = retrieval_scores(ranked, relevant, texts, len(library), _CUTS, "changed and later")
        yield found[~found["system"].isin(["oracle", "random"])]

    @property
    def _library(self) -> Library:
        assert self.model.passage_library is not None
        return self.model.passage_library

    # -- answers ------------------------------------------------------------------------------------------------------

    def _made(self) -> Iterator[dict[str, Any]]:
        masked, facts = self._masked(_some(self.world.world.of_kind("trained", "changed", "held out")))
        read = self._reading.read(masked)
        blocks, words = fact_blocks(facts), self.world.vocabulary.size
        yield from self._reading.made("facts", read, blocks, words)
        for group, rows in _exposures(facts):
            yield from self._reading.made(group, read.take(rows), blocks[rows], words)

    def _written(self) -> Iterator[dict[str, Any]]:
        """Rows about answers decoded over the whole vocabulary, marginalised over passages."""
        facts = _some(self.world.world.of_kind("trained", "changed", "held out"))
        facts = [facts[place] for place in spread(len(facts), _MOST_DECODED)]
        world, tokenizer, level = self.world.world, self.world.tokenizer, self.objective.level
        options: Any = {"k": self.objective.k, "library": self.model.passage_library}
        found = question_candidates(self.model, world, tokenizer, facts, **options)
        _, their_facts = self._masked(facts)
        names = {"exact_match": "thorough"} | ({"exact_match_fast": "fast"} if level == "sequence" else {})
        for metric, decoding in names.items():
            options = {"level": level, "decoding": decoding}
            right = decoded_answers(self.model, world, tokenizer, facts, found, **options).astype(float)
            yield score_row("facts", metric, right, fact_blocks(their_facts), self._guess(their_facts), scale="share")

    def _dates(self) -> Iterator[dict[str, Any]]:
        world = self.world.world
        facts = world.of_kind("trained", "changed", "held out")
        dates = [fact for fact in facts if fact.relation in world.config.date_relations]
        if not dates:
            return
        masked, facts = self._masked(chosen := _some(dates))
        blocks = fact_blocks(facts)
        for k in _PASSAGES:
            if k > len(self._library):
                continue
            right, guess = (self._right(chosen, k, at_random) for at_random in (False, True))
            yield score_row("dates", "p1", right, blocks, float(guess.mean()), k=k, scale="share")
        read = self._reading.read(masked)
        posteriors = ((read.log_prior + logs).softmax(dim=1) for logs in read.logs.unbind(dim=2))
        entropies = [torch.special.entr(one).sum(dim=1).numpy() for one in posteriors]
        shuffled = stream("answer-order").permuted(np.stack(entropies), axis=0)  # the tokens of each answer
        for index, (entropy, control) in enumerate(zip(entropies, shuffled, strict=True), start=1):
            name = f"posterior_entropy_{index}"
            yield score_row("dates", name, entropy, blocks, float(control.mean()), scale="positive")

    def _right(self, facts: Sequence[Fact], k: int, at_random: bool) -> np.ndarray:
        """Whether each question is answered correctly, with passages marginalised as in training."""
        world, tokenizer = self.world.world, self.world.tokenizer
        found = question_candidates(self.model, world, tokenizer, facts, k=k, library=self.model.passage_library)
        if at_random:
            found = replace(found, ids=self._drawn(found.ids))
        logs = own_log_probabilities(self.model, world, tokenizer, facts, found, level=self.objective.level)
        answers = [question.fact for question in world.questions(facts)]
        return (logs.argmax(axis=1) == [world.facts[one].object for one in answers]).astype(np.float64)

    def _drawn(self, ids: np.ndarray) -> np.ndarray:
        """Random passages in place of the retrieved ones; the empty passage stays."""
        drawn = ids.copy()
        for row, one in enumerate(drawn):
            others = stream("random-candidates", row).choice(len(self._library), len(one) - 1, replace=False)
            one[:-1] = np.where(one[:-1] == NULL, NULL, others)
        return drawn

    # -- the language -------------------------------------------------------------------------------------------------

    def _language(self) -> Iterator[dict[str, Any]]:
        """Rows about sentences that no model has read, with one word of each masked."""
        chosen = unread_language(self.world, self.unread, self.before)
        if not len(chosen):
            return
        source: Any = self.unread.queries.source
        asking = replace(self.objective.for_evaluation(), masking="salient", null_share=0.0, null_share_only=False)
        losses, weights, blocks = [], [], text_blocks(source, chosen)
        for part in np.array_split(chosen, max(len(chosen) // _MOST_AT_ONCE, 1)):
            batch = self.unread.queries.batch(asking, part, ("language",), 0).to(self.model.device)
            ids, mask, labels = batch.input_ids, batch.attention_mask, batch.labels
            with torch.no_grad():
                logs, _ = self.model.log_likelihoods(ids, mask, labels, without_passage(len(part)))
                losses.append(-logs[:, 0, 0].double().cpu().numpy())
                if self.model.source in SEARCHES:
                    weights.append(self._prior_of(batch))
        yield score_row(
            "language", "loss", np.concatenate(losses), blocks, np.log(self.unread.vocabulary.size), scale="positive"
        )
        if weights:
            logs, there = (torch.cat(one) for one in zip(*weights, strict=True))
            nothing = torch.zeros((*logs.shape, 0)), torch.zeros((len(logs), 0), dtype=torch.bool)
            yield from priors("language", Read(logs, *nothing, there), blocks)

    def _prior_of(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Log prior over what the model retrieves for sentences, and which candidates exist."""
        num = len(batch.input_ids)
        gold, draws = np.full(num, NULL), np.zeros(num, dtype=np.int64)
        masked = MaskedQuestions(batch.input_ids, batch.attention_mask, batch.labels, gold, draws)
        choice = self._reading.choice(masked, slice(num))
        return self._reading.log_prior(masked.ids, masked.mask, choice), torch.from_numpy(choice.there)

    # -- questions ----------------------------------------------------------------------------------------------------

    def _masked(self, facts: Sequence[Fact]) -> tuple[MaskedQuestions, Sequence[Fact]]:
        world, device = self.world.world, self.model.device
        inputs = fact_inputs(world, self.world.tokenizer, facts, "none", limit=self.world.positions)
        ids, mask = inputs.queries(device)
        labels = np.full(ids.shape, UNSUPERVISED, dtype=np.int64)
        answers = inputs.candidates[np.arange(len(inputs)), inputs.answers]
        for row, (places, words) in enumerate(zip(inputs.masks, answers, strict=True)):
            labels[row, places[places >= 0]] = words[places >= 0]
        gold = np.array([world.gold(fact) for fact in inputs.facts])
        draws = np.array([hash64("own-candidates", 0, fact.number) % (1 << 62) for fact in inputs.facts])
        return MaskedQuestions(ids, mask, torch.from_numpy(labels).to(device), gold, draws), inputs.facts


@lru_cache(maxsize=2)
def unread_language(world: ReadWorld, unread: ReadWorld, before: ReadWorld | None = None) -> np.ndarray:
    """Rows of at most 400 language sentences among the queries of `unread` that no training text contains."""
    read = [one for one in (world, before) if one is not None]
    trained = {text for one in read for text in _language_of(one, range(len(one.queries.source.lengths))).values()}
    looked = spread(len(unread.queries.source.lengths), 16 * _MOST_LANGUAGE).tolist()
    others = [row for row, tokens in _language_of(unread, looked).items() if tokens not in trained]
    rows = np.array(others, dtype=np.int64)
    return rows[spread(len(rows), _MOST_LANGUAGE)] if len(rows) else rows


def _language_of(world: ReadWorld, rows: Iterable[int]) -> dict[int, bytes]:
    """Row → tokens of the queries that are sentences of the language; a token is the same word in every world."""
    source: Any = world.queries.source
    language = (row for row in rows if not len(source.example(row).labels["spans"]))
    return {row: source.row(row).astype(np.int64).tobytes() for row in language}


def _some(facts: Sequence[Fact]) -> list[Fact]:
    """At most 600 facts, the same for every model."""
    chosen = sorted(facts, key=lambda one: hash64("scored", one.number))[: _MOST_FACTS // 2]
    return sorted(chosen, key=lambda one: one.number)


def _exposures(facts: Sequence[Fact]) -> Iterator[tuple[str, np.ndarray]]:
    """Groups of the facts that training asks about: the name, and the group's rows in `facts`."""
    for kind, weight, rows in fact_groups(facts):
        if kind in _COURSE["trained"]:
            yield f"{kind} facts" + ("" if weight == EVERY_WEIGHT else f", weight {weight}"), rows
