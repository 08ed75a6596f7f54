"""The part of a study's plan that says what is probed."""

from dataclasses import dataclass
from typing import Annotated

from infoflow.foundation import CountOrNone, Limits, check_settings

from ._plan_checks import one_of

OF_TREES = "structural"
"""Probes the geometry of trees: it has no task."""
PROBES = ("linear", "mlp", "edge", "online", "variational", OF_TREES)
Sizes = Annotated[tuple[Annotated[float, Limits(above=0, at_most=1)], ...], Limits(filled=True)]
Kinds = Annotated[tuple[str, ...], Limits(filled=True)]
_Few = Annotated[int, Limits(at_least=1, at_most=100)]
_Three = Annotated[int, Limits(at_least=3, at_most=10**9)]  # one to train, to stop and to test each


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbingPlan:
    """What is probed in every model, trained and not; nothing unless tasks or structural probes are named.

    Tasks of plain text (`word`, `position`, `length`, `word-content`, `bigram-shift`) can be read off any sentences;
    the others need a corpus with that annotation. `infoflow probe MODEL` without a task names all tasks and what each
    needs.
    """

    tasks: tuple[str, ...] = ()  # and "minimal-pairs"
    probes: Kinds = ("linear",)  # each task with each: linear, mlp, edge, online, variational; and structural
    corpus: str = ""  # of a study: anything that `load_corpus` takes; "": the sentences that its models are analysed on
    corpus_sentences: CountOrNone = 0  # of it at most, chosen by hash; 0: all
    sentences: _Three = 2000  # of each task: three fifths train, a fifth stops, a fifth is scored
    sizes: Sizes = (1.0,)  # shares of the training sentences, of linear probes and mlp
    seeds: _Few = 3  # of each probe: first weights, order, control labels

    def __post_init__(self) -> None:
        check_settings(self, "probing")
        one_of("probing.probes", self.probes, PROBES)

    @property
    def on(self) -> bool:
        """Whether it probes anything."""
        return bool(self.tasks) or OF_TREES in self.probes
