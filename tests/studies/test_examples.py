"""What the table `objective_examples` shows of a finished study."""

import numpy as np

from infoflow.results import OBJECTIVE_EXAMPLES
from infoflow.studies import Run, ShowExample


def test_each_objective_has_one_example_of_its_training(small_run: Run) -> None:
    table = small_run.tables["objective_examples"]
    assert set(table["objective"]) == set(small_run.tables["training_runs"]["objective"])
    assert table.groupby("objective")["model"].nunique().eq(1).all()
    assert set(OBJECTIVE_EXAMPLES.column_names) <= set(table)


def test_tokens_are_those_of_the_training_s_own_batch(small_run: Run) -> None:
    (stage,) = [one for one in small_run.stages.of(ShowExample) if one.recipe.objective.name == "masked-lm"]
    models, recipe = stage.models, stage.recipe
    data = models.training_data(recipe)
    table = small_run.tables["objective_examples"].query("objective == 'masked-lm'")
    read, targets = (table[table["part"] == part]["token"].tolist() for part in ("inputs", "targets"))
    batches = [
        data.batch(models.objective(recipe), np.array([row]), ("training-noise", recipe.seed), 0)
        for row in range(len(data.source.lengths))
    ]

    def words(ids):
        return ["·" if id < 0 else data.tokenizer.decode([id]).strip() for id in ids.flatten().tolist()]

    said = [(words(batch.input_ids), words(batch.labels)) for batch in batches]
    assert ([token.removeprefix("##") for token in read], [token.removeprefix("##") for token in targets]) in said


def test_the_decoder_writes_words_of_the_other_language(small_run: Run) -> None:
    table = small_run.tables["objective_examples"].query("objective == 'translation'")
    written = table[table["part"] == "targets"]["token"].tolist()
    assert written[-1] == "[SEP]"
    (stage,) = [one for one in small_run.stages.of(ShowExample) if one.recipe.objective.name == "translation"]
    data = stage.models.data
    known = {data.target_tokenizer.decode([id]) for id in range(data.target_vocabulary.size)}
    assert {token.removeprefix("##") for token in written[:-1]} <= known
