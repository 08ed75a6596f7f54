"""Show what each objective of a study makes of one training example."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedTokenizerBase

from infoflow.objectives import Vocabulary
from infoflow.results import OBJECTIVE_EXAMPLES, Recipe
from infoflow.training import TrainingData

from .._study_models import StudyModels
from ._stage import AbstractStage, AbstractTableStage, OfRecipe
from ._train import Train

_VERSION = 1  # increase when the same plan shows other examples
_LENGTH, _ROWS = 16, 1000  # tokens; rows to choose from


@dataclass(frozen=True, kw_only=True, eq=False)
class ShowExample(OfRecipe, AbstractTableStage):
    """One objective's example from its first epoch, of about 16 tokens; few of them are parts of words."""

    kind = "show"
    named = "show {self.recipe.name}"
    stored = "shown"
    makes = (OBJECTIVE_EXAMPLES,)
    guess = 0.01
    runs_models = False

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ShowExample]":
        """For the first model of each objective, once it is trained."""
        firsts: dict[str, Recipe] = {}
        for recipe in models.plan.recipes():
            firsts.setdefault(recipe.objective.label, recipe)
        trained = {stage.recipe.name: stage.key for stage in before if isinstance(stage, Train)}
        return [cls(models=models, recipe=recipe, needs=(trained[recipe.name],)) for recipe in firsts.values()]

    def depends(self) -> list[Any]:
        return ["shown", _VERSION, OBJECTIVE_EXAMPLES.version, self.models.train_key(self.recipe), self.recipe.name]

    def make(self) -> pd.DataFrame:
        objective, data = self.models.objective(self.recipe), self.models.training_data(self.recipe)
        batch = data.batch(objective, np.array([_row(data)]), ("training-noise", self.recipe.seed), epoch=0)
        names = _names(data.tokenizer)
        shown = objective.shown(batch, names, _names(data.target_tokenizer) if objective.needs_translation else names)
        rows = [
            {"part": part, "line": line, "place": place, "token": token}
            for part, lines in (("inputs", shown.inputs), ("targets", shown.targets))
            for line, tokens in lines.items()
            for place, token in enumerate(tokens)
        ]
        return pd.DataFrame(rows, columns=list(OBJECTIVE_EXAMPLES.column_names))


def _row(data: TrainingData) -> int:
    """Of the rows whose length is closest to 16 tokens, the first with the fewest pieces inside words."""
    near = np.argsort(np.abs(data.source.lengths - _LENGTH), kind="stable")[:_ROWS]
    inside = [int((~data.vocabulary.word_starts(data.source.row(row))).sum()) for row in near.tolist()]
    return int(near[np.argmin(inside)])


def _names(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The text of each id, after ## where it continues a word; special tokens by their names."""
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    inside = np.zeros(vocabulary.size, dtype=bool) if vocabulary.continues is None else vocabulary.continues
    texts = tokenizer.batch_decode([[id] for id in range(vocabulary.size)])
    names = tokenizer.convert_ids_to_tokens(list(range(vocabulary.size)))
    return ["##" * bool(more) + (text.strip() or name) for text, name, more in zip(texts, names, inside, strict=True)]
