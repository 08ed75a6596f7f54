"""Scores of how well a model learned its training task, with a trivial baseline."""

from dataclasses import dataclass
from typing import Literal

Baseline = Literal["unigram", "source copied", "most frequent", "chance"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A score on held-out text, its baseline, and the rule that decides whether a model learned its task.

    The rule uses the end of the score's interval that is closer to the baseline, so that a lucky estimate does not
    pass: a score where lower is better is learned if its upper end is below `share` times the baseline, one where
    higher is better if its lower end is more than `gain` above it.
    """

    name: str  # as in the column `metric` of the table `task_scores`
    baseline: Baseline
    """"unigram": frequencies of the training text; "source copied": the source as its translation, or, in
    text without spaces, one sentence for all where that is better; "most frequent": the
    more frequent answer; "chance": a half."""
    better: Literal["lower", "higher"]
    share: float | None = None  # of the baseline; if lower is better
    gain: float | None = None  # over the baseline, in the score's unit; if higher is better

    def __post_init__(self) -> None:
        assert (self.share is None, self.gain is None) == (self.better == "higher", self.better == "lower")

    def limit(self, baseline: float) -> float:
        """The value that the interval must exceed."""
        return baseline + self.gain if self.gain is not None else baseline * (self.share or 0.0)

    def needed(self, baseline: float) -> str:
        """The rule in words: `needed below 4.5`."""
        return f"needed {'below' if self.better == 'lower' else 'above'} {self.limit(baseline):.3g}"

    @property
    def label(self) -> str:
        """The score's display name."""
        return "BLEU" if self.name == "bleu" else self.name

    def learned(self, low: float, high: float, baseline: float) -> bool:
        """Whether a score with the interval from `low` to `high` shows that the task was learned."""
        return high < self.limit(baseline) if self.better == "lower" else low > self.limit(baseline)


# 10 % below token frequencies: context is used, more than a few updates achieve.
LOSS = Metric(name="loss", baseline="unigram", better="lower", share=0.9)
# Translations below about 10 points are usually considered useless; a decoder that ignores its source gets no further.
BLEU = Metric(name="bleu", baseline="source copied", better="higher", gain=10.0)
