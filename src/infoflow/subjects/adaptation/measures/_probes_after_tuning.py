"""Changes in the accuracy of language probes due to tuning."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, measure
from infoflow.models import Model
from infoflow.probing import PROBE_SCORES, Probe, tasks

from ._body import began_as
from ._seeds import mean_estimate, without_tuned
from ._tables import PROBES_AFTER_TUNING

PROBED = ("upos", "word", "position")


def probes_after_tuning(
    before: Model,
    after: Sequence[Model],
    corpus: Corpus,
    options: PassOptions | None = None,
    *,
    tagged: Corpus | None = None,
    probed: Sequence[str] = PROBED,
    sentences: int = 300,
) -> pd.DataFrame:
    """The table `PROBES_AFTER_TUNING` without the columns of `TUNED`.

    The accuracy of linear probes (`probing.Probe`) for a word's part of speech, identity and position, trained on the
    frozen states of each layer of the model before and of each tuned one; after tuning, means over seeds. Probes are
    few and stop early: compare before with after, not with published numbers.

    Args:
        before: The pretrained model.
        after: The models tuned from it.
        corpus: Sentences, such as those of the task.
        options: Seed, maximum length, batch size.
        tagged: An annotated corpus, used for all probes; without it, probes that need annotation are left out.
        probed: Tasks of `probing.tasks()`, or columns of tags.
        sentences: At most this many, chosen by hash.

    Raises:
        UserError: The models have different bodies, or the corpus supports none of the tasks.
    """
    start = began_as(before, after)
    asked = corpus if tagged is None else tagged
    measures = [
        Probe(task=name, sentences=sentences, seeds=1, control=False, epochs=8, batch=400, patience=2)
        for name in askable(asked, probed)
    ]
    by_model = [_accuracies(measure(one, asked, measures, options)[PROBE_SCORES.name]) for one in (start, *after)]
    rows = []
    for (probe, stack, layer), row in by_model[0].items():
        keys = {"probe": probe, "stack": stack, "layer": layer}
        rows.append({**keys, "state": "before", **mean_estimate([row], scale="share")})
        tuned = [of_model[probe, stack, layer] for of_model in by_model[1:]]
        rows.append({**keys, "state": "after", **mean_estimate(tuned, scale="share")})
    schema = without_tuned(PROBES_AFTER_TUNING)
    return schema.conform(pd.DataFrame(rows, columns=schema.column_names))


def askable(corpus: Corpus, probed: Sequence[str] = PROBED) -> list[str]:
    """The tasks that the corpus has the columns for."""
    known = {task.name for task in tasks(corpus)}
    return [name for name in probed if name in known]


def _accuracies(scores: pd.DataFrame) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Estimate columns of the accuracy on all words, by probe, stack and layer."""
    chosen = scores[(scores["metric"] == "accuracy") & (scores["labels"] == "task") & (scores["words"] == "all")]
    return {(row["task"], row["stack"], row["layer"]): row for row in chosen.to_dict("records")}
