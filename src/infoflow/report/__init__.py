"""The report: one HTML file with a run's results, and its figures as files; the only package that knows HTML."""

from ._embedding import check_replaceable
from ._files import write_figures as write_figures
from ._in_words import chosen
from ._page import anonymize, check_output, write_report
from ._shown_run import ShownRun
from ._to_hub import upload_run
from ._view import (
    Explored,
    ViewAnswer,
    check_view_path,
    further_answers,
    further_views,
    view_blocks,
    view_page,
    view_payload,
    write_view,
    write_word_view,
)
from .notebook._figure import Figure as Figure
from .notebook._figure import render
from .notebook._figures import (
    Figures,
    Findings,
    anatomy_shown,
    corpus_shown,
    model_shown,
    run_shown,
    table_shown,
    tables_shown,
)
from .notebook._plot import known_tables, plot
from .notebook._view import View, attention_shown, view
