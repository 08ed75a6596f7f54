"""Run folders for the report's tests; `synthetic_run` is imported inside fixtures, after jaxtyping's import hook."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    from synthetic_run import make_study

    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def story(study):
    from infoflow.report._story import tell

    return tell(study)


@pytest.fixture(scope="session")
def report(study):
    from infoflow.report import write_report

    return write_report(study)


@pytest.fixture(scope="session")
def analysis(tmp_path_factory):
    from synthetic_run import make_analysis

    return make_analysis(tmp_path_factory.mktemp("analysis"))
