"""Inputs that `measure` and `compare` accept in place of loaded models, loaded corpora and lists of measures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infoflow.corpus import Corpus, load_corpus
from infoflow.foundation import UserError, as_written
from infoflow.models import Model, load_model

from ._measure import AbstractMeasure, check_measures

Measures = Sequence[AbstractMeasure] | AbstractMeasure


def accepted_model(model: Any) -> Model:
    """A loaded model as it is; a name, a folder or an instance of transformers via `load_model`.

    Raises:
        UserError: The model is something else, or cannot be loaded.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, str | Path) or hasattr(model, "save_pretrained"):
        return load_model(model)
    raise UserError(
        f"A model is a name, a folder, or what infoflow.load_model returns. Got {as_written(model)}. Name one."
    )


def accepted_models(models: Any) -> list[Model]:
    """The same for several models.

    Raises:
        UserError: `models` is a single model, or one cannot be loaded.
    """
    if not isinstance(models, list | tuple):
        raise UserError(
            "compare takes a list of models first: compare([first, second], corpus, measures). "
            f"Got {'one model' if isinstance(models, Model) else as_written(models)}. Put the models into a list."
        )
    return [accepted_model(model) for model in models]


def accepted_corpus(corpus: Any) -> Corpus:
    """A corpus as it is; a name, a path, a list, a frame or a dataset via `load_corpus`.

    Raises:
        UserError: The corpus cannot be read.
    """
    if isinstance(corpus, Model):
        raise UserError("The corpus comes after the model, or the list of models. Got a second model in its place.")
    return corpus if isinstance(corpus, Corpus) else load_corpus(corpus)


def accepted_measures(measures: Any) -> Sequence[AbstractMeasure]:
    """A list of measures; a single one becomes such a list.

    Raises:
        UserError: The list contains something else.
    """
    measures = [measures] if isinstance(measures, AbstractMeasure) else measures
    check_measures(measures)
    return measures
