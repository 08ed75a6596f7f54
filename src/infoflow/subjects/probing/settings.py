"""The section `[probing]` of a plan, and of the options of an analysis."""

from dataclasses import dataclass
from typing import Annotated

from infoflow.foundation import CountOrNone, File, Limits, check_settings, one_of

OF_TREES = "structural"
"""The probe of tree geometry, which has no task."""
OF_ATTENTION = "attention"
"""The probes that read a tree from the attention of all heads; they have no task either."""
WITHOUT_TASK = (OF_TREES, OF_ATTENTION)
PROBES = ("linear", "mlp", "edge", "online", "variational", *WITHOUT_TASK)
Sizes = Annotated[tuple[Annotated[float, Limits(above=0, at_most=1)], ...], Limits(filled=True)]
Kinds = Annotated[tuple[str, ...], Limits(filled=True)]
_Few = Annotated[int, Limits(at_least=1, at_most=100)]
_Three = Annotated[int, Limits(at_least=3, at_most=10**9)]  # one sentence each for training, early stopping and test


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbingPlan:
    """What is probed in every model, trained or untrained. Without tasks or tree probes, nothing is probed.

    Plain text tasks (`word`, `position`, `length`, `word-content`, `bigram-shift`) work on any sentences; the other
    tasks need an annotated corpus. `infoflow probe MODEL` without a task lists all tasks and their requirements.
    """

    tasks: tuple[str, ...] = ()  # names of tasks, also "minimal-pairs"
    probes: Kinds = ("linear",)  # for all tasks or, as "mlp:upos", for one; structural and attention probe trees
    corpus: File = ""  # corpus for a study, as for `load_corpus`; "": the sentences that its models are analysed on
    corpus_sentences: CountOrNone = 0  # maximum number, chosen by hash; 0: all
    sentences: _Three = 2000  # sentences of each task: three fifths train, one fifth stops early, one fifth is scored
    sizes: Sizes = (1.0,)  # shares of the training sentences, for linear probes and mlp
    seeds: _Few = 3  # of each probe: initial weights, order, control labels

    def __post_init__(self) -> None:
        check_settings(self, "probing")
        one_of("probing.probes", tuple(probe.partition(":")[0] for probe in self.probes), PROBES)
        if self.tasks:
            one_of("probing.probes", tuple(of for probe in self.probes if (of := probe.partition(":")[2])), self.tasks)

    @property
    def on(self) -> bool:
        """Whether anything is probed."""
        return bool(self.tasks) or self.trees

    @property
    def trees(self) -> bool:
        """Whether tree probes, which have no task, are requested."""
        return any(name in self.probes for name in WITHOUT_TASK)

    def probes_of(self, task: str) -> list[str]:
        """The probes of a task."""
        named = (probe.partition(":") for probe in self.probes)
        return list(dict.fromkeys(name for name, _, of in named if name not in WITHOUT_TASK and of in ("", task)))


SECTIONS = {"probing": ProbingPlan}
OPTIONS = {"probing": ProbingPlan}
