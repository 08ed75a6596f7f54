"""The part of a study's plan that says what is probed."""

from dataclasses import dataclass
from typing import Annotated, Literal

from infoflow.foundation import CountOrNone, Limits, Share, check_settings

ProbeKind = Literal["linear", "mlp"]
CodeKind = Literal["online", "variational"]
Sizes = Annotated[tuple[Share, ...], Limits(filled=True)]
_Few = Annotated[int, Limits(at_least=1, at_most=100)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbingPlan:
    """What is probed in every model of a study, trained and not; nothing unless tasks are named.

    Tasks of plain text (`word`, `position`, `length`, `word-content`, `bigram-shift`) can be read off the study's own
    sentences; the others need a `corpus` with that annotation, of which the sentences that are as long as the study's
    are read. `infoflow probe --list` names all tasks and what each needs.
    """

    tasks: tuple[str, ...] = ()
    corpus: str = ""  # anything that `load_corpus` takes; "": the sentences that the models are analysed on
    sentences: CountOrNone = 3000  # chosen by hash, of which three fifths train the probes; 0: all
    probes: tuple[ProbeKind, ...] = ("linear",)
    sizes: Sizes = (1.0,)  # shares of the training sentences
    seeds: _Few = 3  # of each probe: first weights, order, control labels
    codes: tuple[CodeKind, ...] = ()  # description length of the labels
    edge: bool = False  # edge probes with scalar mix: where in depth
    trees: bool = False  # the structural probe; needs trees

    def __post_init__(self) -> None:
        check_settings(self, "probing")

    @property
    def on(self) -> bool:
        return bool(self.tasks) or self.trees
