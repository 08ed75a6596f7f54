"""One HTML file that tells what a run found, and its figures as files; the only room that knows HTML."""

from ._files import write_figures as write_figures
from ._page import anonymize as anonymize
from ._page import write_report as write_report
from ._replaceable import check_replaceable as check_replaceable
from ._shown_run import ShownRun as ShownRun
from ._view import check_view_path as check_view_path
from ._view import write_view as write_view
from ._word_view import write_word_view as write_word_view
from .notebook._chart import render as render
from .notebook._figure import Figure as Figure
from .notebook._figure import LiveFigure as LiveFigure
from .notebook._figures import Figures as Figures
from .notebook._findings import Findings as Findings
from .notebook._plot import plot as plot
from .notebook._shown import anatomy_shown as anatomy_shown
from .notebook._shown import corpus_shown as corpus_shown
from .notebook._shown import model_shown as model_shown
from .notebook._shown import run_shown as run_shown
from .notebook._shown import table_shown as table_shown
from .notebook._shown import tables_shown as tables_shown
from .notebook._view import View as View
from .notebook._view import attention_shown as attention_shown
from .notebook._view import view as view
