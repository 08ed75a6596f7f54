"""One HTML file that tells what a run found, and its figures as files; the only room that knows HTML."""

from ._files import write_figures as write_figures
from ._page import anonymize as anonymize
from ._page import write_report as write_report
from ._replaceable import check_replaceable as check_replaceable
from ._view import check_view_path as check_view_path
from ._view import write_view as write_view
from ._word_view import write_word_view as write_word_view
