"""The part of a study's plan that says what is probed."""

from dataclasses import dataclass
from typing import Annotated

from infoflow.foundation import CountOrNone, Limits, check_settings

from ._plan_checks import one_of

OF_TREES = "structural"
"""The probe of the geometry of trees: it has no task."""
OF_ATTENTION = "attention"
"""Probes that read a tree off the attention of all heads: they have no task either."""
WITHOUT_TASK = (OF_TREES, OF_ATTENTION)
PROBES = ("linear", "mlp", "edge", "online", "variational", *WITHOUT_TASK)
Sizes = Annotated[tuple[Annotated[float, Limits(above=0, at_most=1)], ...], Limits(filled=True)]
Kinds = Annotated[tuple[str, ...], Limits(filled=True)]
_Few = Annotated[int, Limits(at_least=1, at_most=100)]
_Three = Annotated[int, Limits(at_least=3, at_most=10**9)]  # one to train, to stop and to test each


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbingPlan:
    """What is probed in every model, trained and not; nothing unless tasks or probes of trees are named.

    Tasks of plain text (`word`, `position`, `length`, `word-content`, `bigram-shift`) can be read off any sentences;
    the others need a corpus with that annotation. `infoflow probe MODEL` without a task names all tasks and what each
    needs.
    """

    tasks: tuple[str, ...] = ()  # and "minimal-pairs"
    probes: Kinds = ("linear",)  # of all tasks or, as "mlp:upos", of one; structural and attention of trees
    corpus: str = ""  # of a study: anything that `load_corpus` takes; "": the sentences that its models are analysed on
    corpus_sentences: CountOrNone = 0  # of it at most, chosen by hash; 0: all
    sentences: _Three = 2000  # of each task: three fifths train, a fifth stops, a fifth is scored
    sizes: Sizes = (1.0,)  # shares of the training sentences, of linear probes and mlp
    seeds: _Few = 3  # of each probe: first weights, order, control labels

    def __post_init__(self) -> None:
        check_settings(self, "probing")
        one_of("probing.probes", tuple(probe.partition(":")[0] for probe in self.probes), PROBES)
        if self.tasks:
            one_of("probing.probes", tuple(of for probe in self.probes if (of := probe.partition(":")[2])), self.tasks)

    @property
    def on(self) -> bool:
        """Whether it probes anything."""
        return bool(self.tasks) or self.trees

    @property
    def trees(self) -> bool:
        """Whether it asks for probes of trees, which have no task."""
        return any(name in self.probes for name in WITHOUT_TASK)

    def probes_of(self, task: str) -> list[str]:
        """The probes that a task is asked with."""
        asked = (probe.partition(":") for probe in self.probes)
        return list(dict.fromkeys(name for name, _, of in asked if name not in WITHOUT_TASK and of in ("", task)))
