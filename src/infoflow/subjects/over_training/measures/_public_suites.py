"""Public suites of checkpoints: known metadata. Data only; unlisted suites work without it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicSuite:
    """Metadata of a family of checkpoints, known in advance."""

    name: str
    pattern: str  # regular expression of its repositories' names
    steps: tuple[int, ...] = ()  # expected steps; (): unknown
    tokens_per_update: float | None = None
    doubtful: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)  # repository: revisions
    source: str = ""  # of `doubtful`


_PYTHIA_STEPS = (0, *(2**power for power in range(10)), *range(1000, 143_001, 1000))
_PYTHIA_2_8B = (0, *(2**power for power in range(10)), *range(1000, 65_000, 1000), 65_000, 70_000, 80_000, 90_000,
                100_000, 103_000, 110_000, 120_000, 130_000, 140_000)  # fmt: skip

PUBLIC_SUITES = (
    PublicSuite(
        name="Pythia",
        pattern=r"EleutherAI/(neox-ckpt-)?pythia-(?!.*-v0$)[\w.-]+",
        steps=_PYTHIA_STEPS,
        tokens_per_update=2_097_152,
        doubtful={
            "EleutherAI/pythia-2.8b": tuple(f"step{step}" for step in _PYTHIA_2_8B),
            "EleutherAI/pythia-12b": ("step50000", "step58000"),
        },
        source="https://github.com/EleutherAI/pythia/issues/205 and 206",
    ),
    PublicSuite(
        name="MultiBERTs",
        pattern=r"google/multiberts-seed_[0-4](-step_\w+)?",
        steps=(*range(0, 200_001, 20_000), *range(300_000, 2_000_001, 100_000)),
    ),
    PublicSuite(
        name="Stanford GPT-2",
        pattern=r"stanford-crfm/\w+-gpt2-(small|medium)-x\d+",
        steps=tuple(
            chain(range(0, 100, 10), range(100, 2000, 50), range(2000, 20_000, 100), range(20_000, 400_001, 1000))
        ),
        tokens_per_update=524_288,
    ),
    PublicSuite(name="OLMo", pattern=r"allenai/OLMo[\w.-]*"),  # names tell step and tokens
)
"""PolyPythias are part of Pythia: `EleutherAI/pythia-160m-seed3`."""


def public_suite(repository: str) -> PublicSuite | None:
    """The suite of a repository; None if unknown."""
    return next((suite for suite in PUBLIC_SUITES if re.fullmatch(suite.pattern, repository)), None)
