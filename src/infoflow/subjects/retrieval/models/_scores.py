"""The table `retrieval_scores`, and passages and training queries that give answers away."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import (
    NUM_BLOCKS,
    Scale,
    UserError,
    block_of,
    comparable,
    hash64,
    running_words,
    stream,
    words_of,
)
from infoflow.models import exact_match, token_f1
from infoflow.results import QUERY_LEAKAGE, RETRIEVAL_SCORES, estimate, linear_replicates, ratio_estimate

from ._found import NOTHING, Ranked, Relevant, hit_at, recall_at, reciprocal_rank
from ._passages import Passages


def origins(sentences: Sequence[str], passages: Passages) -> list[list[int]]:
    """Ids of the passages that contain each sentence word for word, ignoring white space; none for an empty sentence.

    If a masked sentence may read its own passage, or a verbatim copy in another passage, it can be answered by copying.
    """
    plain, texts = ([" ".join(running_words(text)) for text in some] for some in (sentences, passages.texts()))
    near = _with_rarest_word(plain, texts)
    return [[id for id in ids if _holds(texts[id], text)] for text, ids in zip(plain, near, strict=True)]


def _with_rarest_word(wanted: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
    """For each wanted text, the indices of the texts with its rarest word, which no text that contains it lacks."""
    words, places = {word for one in wanted for word in one.split()}, defaultdict[str, list[int]](list)
    for number, text in enumerate(texts):
        for word in words.intersection(text.split()):
            places[word].append(number)
    return [min((places[word] for word in one.split()), key=len, default=[]) for one in wanted]


# The table `retrieval_scores`: rankings and answers with intervals, with chance and an oracle for comparison.

CUTS = (1, 2, 5, 10, 20, 100)


def retrieval_scores(
    ranked: Mapping[str, Ranked],
    relevant: Relevant,
    questions: Sequence[str],
    num_passages: int,
    cuts: Collection[int] = CUTS,
    queries: str = "all",
    seed: int = 0,
) -> pd.DataFrame:
    """Hit and recall at each cut, MRR and collapse of every system, and of `random` and `oracle` (without collapse).

    The table also has the share of questions without results, for which only the empty passage can be read.

    Intervals come from a bootstrap over blocks of questions, shared by all systems, so replicates are paired.

    Args:
        ranked: System → ids of each question's passages, best first.
        relevant: Ids of the passages that answer each question.
        questions: Texts of the questions; equal ones are in one block.
        num_passages: Size of the index.
        cuts: Values of k; those beyond the number of results are left out.
        queries: Name of this group of questions.
        seed: Seeds the random control.

    Raises:
        UserError: The numbers of rankings and questions differ, or a question has no relevant passage.
    """
    if len(questions) != len(relevant):
        raise UserError(f"Each question needs its relevant passages. Got {len(questions)} and {len(relevant)}.")
    blocks = question_blocks(questions)
    depth = max((len(row) for system in ranked.values() for row in system), default=1)
    chance = _random_rankings(len(questions), num_passages, depth, seed)
    oracle = [sorted(map(int, one)) for one in relevant]
    baselines = {key: float(values.mean()) for key, values in _metrics(chance, relevant, cuts, depth).items()}
    rows = []
    for system, rankings in {**ranked, "oracle": oracle, "random": chance}.items():
        for (metric, k), values in _metrics(rankings, relevant, cuts, depth).items():
            baseline = baselines[metric, k]
            rows.append(score_row(queries, metric, values, blocks, baseline, "share", k=k, system=system))
        if system != "oracle":
            rows.append(_collapse(system, queries, rankings, num_passages, blocks, chance))
    return RETRIEVAL_SCORES.conform(pd.DataFrame(rows))


def answer_scores(
    said: Sequence[str], answers: Sequence[Sequence[str]], questions: Sequence[str], system: str, queries: str = "all"
) -> pd.DataFrame:
    """Exact match and token F1 of answers; the baseline always gives the most frequent right answer."""
    if not len(said) == len(answers) == len(questions):
        raise UserError(f"Each question needs an answer. Got {len(said)}, {len(answers)} and {len(questions)}.")
    blocks = question_blocks(questions)
    constant = Counter(one[0] for one in answers).most_common(1)[0][0]
    rows = []
    for metric, score in (("em", exact_match), ("f1", token_f1)):
        values = np.array([float(score(text, right)) for text, right in zip(said, answers, strict=True)])
        baseline = float(np.mean([float(score(constant, right)) for right in answers]))
        rows.append(score_row(queries, metric, values, blocks, baseline, "share", system=system))
    return RETRIEVAL_SCORES.conform(pd.DataFrame(rows))


def question_blocks(questions: Sequence[str]) -> np.ndarray:
    """The bootstrap block of each question, by its text."""
    return block_of(np.array([hash64("question", one) >> 1 for one in questions], dtype=np.int64))


def collapse(ranked: Ranked, num_passages: int) -> float:
    r"""Entropy of the found passages over all queries, divided by \(\log\) of the number of passages: 0 to 1."""
    found = np.concatenate([np.asarray(row, dtype=np.int64) for row in ranked]) if len(ranked) else np.empty(0, int)
    found = found[found != NOTHING]
    if not len(found) or num_passages < 2:
        return float("nan")
    shares = np.unique(found, return_counts=True)[1] / len(found)
    return float(-(shares * np.log(shares)).sum() / np.log(num_passages))


def _metrics(ranked: Ranked, relevant: Relevant, cuts: Collection[int], depth: int) -> dict[Any, np.ndarray]:
    kept = [k for k in sorted(set(cuts)) if k <= depth]
    hits = {("hit", k): hit_at(ranked, relevant, k) for k in kept}
    recalls = {("recall", k): recall_at(ranked, relevant, k) for k in kept}
    nothing = np.array([not any(id != NOTHING for id in row) for row in ranked], dtype=np.float64)
    return {**hits, **recalls, ("mrr", 0): reciprocal_rank(ranked, relevant), ("nothing_found", 0): nothing}


def _random_rankings(num: int, num_passages: int, depth: int, seed: int) -> list[np.ndarray]:
    size = min(depth, num_passages)
    return [stream("random-passages", seed, row).choice(num_passages, size, replace=False) for row in range(num)]


def block_mean(values: np.ndarray, blocks: np.ndarray, baseline: float, scale: Scale = "any") -> dict[str, Any]:
    """Columns of an estimate of the mean of values, with a bootstrap over their blocks; NaN does not count."""
    counted = np.isfinite(values)
    sums = np.bincount(blocks, np.where(counted, values, 0.0), NUM_BLOCKS)
    return ratio_estimate(sums, np.bincount(blocks, counted, NUM_BLOCKS), baseline, scale)


def score_row(
    queries: str,
    metric: str,
    values: np.ndarray,
    blocks: np.ndarray,
    baseline: float,
    scale: Scale = "any",
    *,
    k: int = 0,
    system: str = "own",
) -> dict[str, Any]:
    """One row about a system's search, prior or answers; `own` is the model itself."""
    named = {"system": system, "queries": queries, "metric": metric, "k": k}
    return {**named, **block_mean(values, blocks, baseline, scale)}


def _collapse(
    system: str, queries: str, ranked: Ranked, num_passages: int, blocks: np.ndarray, chance: Ranked
) -> dict[str, Any]:
    """The row of `collapse`; replicates leave out one block, since drawing questions twice would lower the entropy."""
    value = collapse(ranked, num_passages)
    rows = [np.asarray(row) for row in ranked]
    without = [
        collapse([row for row, place in zip(rows, blocks, strict=True) if place != block], num_passages)
        if (blocks == block).any()
        else value
        for block in range(NUM_BLOCKS)
    ]
    replicates = linear_replicates(value, np.array(without))
    units, control = len(np.unique(blocks)), collapse(chance, num_passages)
    numbers = estimate(value, replicates, control, len(rows), scale="share", units=units)
    return {"system": system, "queries": queries, "metric": "collapse", "k": 0, **numbers}


# Test questions that training already asked or answered: counts, examples, and scores without them.

_EXAMPLES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryLeakage:
    """Indices of the test questions that occur in training."""

    repeated: tuple[int, ...]  # a training query has the same words in the same order
    with_answer: tuple[int, ...]  # a training query contains the subject and an answer
    examples: tuple[tuple[str, str], ...]  # of the first ten: the question, and the training query that leaks it

    num_questions: int = 0  # number of questions in the test

    def table(self) -> pd.DataFrame:
        """The table QUERY_LEAKAGE."""
        numbers = {"questions": self.num_questions, "leaked": len(self.leaked)}
        shown = self.examples or (("", ""),)
        return QUERY_LEAKAGE.conform(
            pd.DataFrame([{**numbers, "question": question, "query": query} for question, query in shown])
        )

    @property
    def leaked(self) -> tuple[int, ...]:
        """All leaked questions, in order."""
        return tuple(sorted({*self.repeated, *self.with_answer}))

    def __str__(self) -> str:
        if not self.leaked:
            return "No test question is among the training queries."
        lines = [f"  {question!r} ← {query!r}" for question, query in self.examples]
        return "\n".join(
            [f"{len(self.leaked):,} test questions occur in training ({len(self.repeated):,} as questions, "
             f"{len(self.with_answer):,} as answers):", *lines]
        )  # fmt: skip


def query_leakage(
    questions: Sequence[str],
    training: Sequence[str],
    answers: Sequence[Sequence[str]] | None = None,
    subjects: Sequence[str] | None = None,
) -> QueryLeakage:
    """Test questions that training has seen, compared by words: lower case, NFD, without punctuation.

    Accents and other marks belong to their letters; in scripts without spaces each character counts as a word.

    Args:
        questions: The test questions.
        training: Training queries before masking.
        answers: Right answers to each question.
        subjects: Subject of each question. If answers and subjects are given, a training query with the words of the
            subject and of an answer, each in sequence, leaks the question.

    Raises:
        UserError: The number of answers or subjects differs from that of questions, or only one of the two is given.
    """
    for name, given in (("answers", answers), ("subjects", subjects)):
        if given is not None and len(given) != len(questions):
            raise UserError(f"Each of {len(questions):,} questions needs its {name}. Got {len(given):,}.")
    if (answers is None) != (subjects is None):
        raise UserError(
            "Leakage of answers needs subjects and answers. Got only one of them.\n"
            "Pass subjects and answers, or neither."
        )
    queries = [_words(text) for text in training]
    same: dict[str, int] = {}
    for number, words in enumerate(queries):
        same.setdefault(words, number)
    leaks = {number: same[words] for number, text in enumerate(questions) if (words := _words(text)) and words in same}
    asked = tuple(leaks)
    answered = _answered(queries, answers, subjects) if answers is not None and subjects is not None else {}
    shown = sorted({**answered, **leaks}.items())[:_EXAMPLES]
    examples = tuple((str(questions[number]), str(training[query])) for number, query in shown)
    return QueryLeakage(repeated=asked, with_answer=tuple(answered), examples=examples, num_questions=len(questions))


def leakage_scores(
    ranked: Mapping[str, Ranked],
    relevant: Relevant,
    questions: Sequence[str],
    num_passages: int,
    leakage: QueryLeakage,
    cuts: Collection[int] = CUTS,
) -> pd.DataFrame:
    """`retrieval_scores` of all questions (queries `all`), and of those not in training (`not leaked`).

    Raises:
        UserError: Every question is leaked, or rankings, questions and relevant passages do not match.
    """
    known = set(leakage.leaked)
    if known and max(known) >= len(questions):
        raise UserError(
            f"The leakage belongs to other questions: it names question {max(known)}, counted from 0, but there are "
            f"only {len(questions):,} questions."
        )
    kept = [number for number in range(len(questions)) if number not in known]
    if not kept:
        raise UserError(
            f"All {len(questions):,} test questions occur in training, so nothing is left to score.\n"
            "Use test questions that are not among the training queries."
        )
    parts = [retrieval_scores(ranked, relevant, questions, num_passages, cuts, "all")]
    if known:
        fewer = {system: [rows[number] for number in kept] for system, rows in ranked.items()}
        own = [relevant[number] for number in kept]
        kept_questions = [questions[number] for number in kept]
        parts.append(retrieval_scores(fewer, own, kept_questions, num_passages, cuts, "not leaked"))
    return RETRIEVAL_SCORES.conform(pd.concat(parts, ignore_index=True))


def _answered(queries: list[str], answers: Sequence[Sequence[str]], subjects: Sequence[str]) -> dict[int, int]:
    """The first training query that answers each question."""
    wanted, found = [_words(one) for one in subjects], {}
    near = _with_rarest_word(wanted, queries)
    for number, (subject, right, numbers) in enumerate(zip(wanted, answers, near, strict=True)):
        objects = [one for one in map(_words, right) if one]
        for query in numbers:
            if _holds(queries[query], subject) and any(_holds(queries[query], one) for one in objects):
                found[number] = query
                break
    return found


def _holds(text: str, words: str) -> bool:
    return f" {words} " in f" {text} "


def _words(text: str) -> str:
    return " ".join(words_of(comparable(text, decompose=True).lower()))
