"""What a page draws, without the page: its sections and figures, for tests that look inside them.

The one door of the report's tests to what every section is made of: a file that moves in the report moves here alone.
"""

from collections.abc import Collection, Iterable

from infoflow.report import _drawing as drawing_engine  # noqa: F401
from infoflow.report._drawing import simplified as simplified
from infoflow.report._drawing import svg_of as svg_of
from infoflow.report._embedding import pack_figures as pack_figures
from infoflow.report._figure import ReportFigure as ReportFigure
from infoflow.report._figure import Section as Section
from infoflow.report._in_words import chosen as chosen
from infoflow.report._in_words import decimals as decimals
from infoflow.report._in_words import number as number
from infoflow.report._model_selection import ModelSelection as ModelSelection
from infoflow.report._model_selection import seeds_of_lines as seeds_of_lines
from infoflow.report._model_tables import ModelTables as ModelTables
from infoflow.report._story import _opened as opened  # noqa: F401
from infoflow.report._story import sections
from infoflow.report._story import tell as tell
from infoflow.report._theme import Series as Series
from infoflow.report._theme import objective_label as objective_label
from infoflow.report.forms._chart import finished as finished
from infoflow.report.forms._chart import records as records
from infoflow.report.forms._over_time import TimeAxis
from infoflow.report.front_page._cards import Effects as Effects
from infoflow.report.front_page._cards import _sentence as card_sentence  # noqa: F401
from infoflow.report.front_page._cards import effects as effects
from infoflow.report.front_page._measures import MEASURES as MEASURES
from infoflow.report.front_page._measures import measured as measured
from infoflow.report.front_page._screen import _failed as failed_sentence  # noqa: F401
from infoflow.report.front_page._spark import spark as spark
from infoflow.results import RunFolder
from infoflow.subjects.over_training.figures._course import CheckpointTables


def shown_tables(run: RunFolder) -> ModelTables:
    """The rows that the page shows, with the keys of their lines."""
    return ModelTables.of(run)


def drawn_section(run: RunFolder, name: str) -> Section | None:
    """The section of that id; None where the run has nothing for it."""
    build = next(build for heading, build in sections() if heading.id == name)
    return build(shown_tables(run))


def drawn_figures(run: RunFolder, name: str) -> dict[str, ReportFigure]:
    """The figures of a section, by their ids."""
    found = drawn_section(run, name)
    assert found is not None
    return {figure.id: figure for figure in found.figures}


def time_axis(run: RunFolder) -> TimeAxis:
    """Where the updates of each model lie in pictures over training."""
    return CheckpointTables(shown_tables(run)).axis


def assert_explained(figures: Iterable[ReportFigure], not_surprising: Collection[str] = ()) -> None:
    """Every figure answers its question, says how to read it and what would surprise, and how it was made."""
    for figure in figures:
        assert figure.question.endswith("?")
        assert figure.answer
        assert all(text.endswith(".") for text in figure.answer)
        assert len(figure.how_to_read) >= 2
        assert "surprising" in " ".join(figure.how_to_read) or figure.id in not_surprising
        assert figure.method is not None
        assert len(figure.method.text) > 200
        assert figure.caption.endswith(".")
        assert len(figure.data)
