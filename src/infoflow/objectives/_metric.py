"""How well a model does what it was trained for, beside what a guess that learned nothing gets."""

from dataclasses import dataclass
from typing import Literal

Baseline = Literal["unigram", "source copied", "most frequent", "chance"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A score on held-out text, its baseline, and the rule by which a model counts as having learned its task.

    The rule looks at the end of the score's interval that is nearer to the baseline, so that a lucky estimate does not
    pass: a score that falls has learned where its upper end lies below `share` times the baseline, one that rises where
    its lower end lies more than `gain` above.
    """

    name: str  # as in the column `metric` of the table `task_scores`
    baseline: Baseline
    """"unigram": frequencies of the training text; "source copied": the source as its translation; "most frequent": the
    more frequent answer; "chance": a half."""
    better: Literal["lower", "higher"]
    share: float | None = None  # of the baseline; where lower is better
    gain: float | None = None  # over the baseline, in the score's unit; where higher is better

    def __post_init__(self) -> None:
        assert (self.share is None, self.gain is None) == (self.better == "higher", self.better == "lower")

    def limit(self, baseline: float) -> float:
        """What the interval must lie beyond."""
        return baseline + self.gain if self.gain is not None else baseline * (self.share or 0.0)

    def needed(self, baseline: float) -> str:
        """The rule in words: `needed below 4.5`."""
        return f"needed {'below' if self.better == 'lower' else 'above'} {self.limit(baseline):.3g}"

    @property
    def label(self) -> str:
        """The score's name as people write it."""
        return "BLEU" if self.name == "bleu" else self.name

    def learned(self, low: float, high: float, baseline: float) -> bool:
        """Whether a score with the interval from `low` to `high` shows that the task was learned."""
        return high < self.limit(baseline) if self.better == "lower" else low > self.limit(baseline)


# 10 % below token frequencies: context is used, beyond what a few updates teach.
LOSS = Metric(name="loss", baseline="unigram", better="lower", share=0.9)
# Below about 10 points a translation is commonly read as useless; a decoder that ignores its source gets no further.
BLEU = Metric(name="bleu", baseline="source copied", better="higher", gain=10.0)
