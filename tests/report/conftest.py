"""Run folders for the report's tests; `synthetic_run` is imported inside fixtures, after the hook that checks it."""

import pickle
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from support.chromium import chromium

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    from synthetic_run import make_study

    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def story(study):
    from drawn import tell

    return tell(study)


@pytest.fixture(scope="session")
def report(study):
    from infoflow.report import write_report

    return write_report(study)


@pytest.fixture(scope="session")
def analysis(tmp_path_factory):
    from synthetic_run import make_analysis

    return make_analysis(tmp_path_factory.mktemp("analysis"))


@pytest.fixture(scope="session")
def analysis_report(analysis):
    from infoflow.report import write_report

    return write_report(analysis)


@pytest.fixture(scope="session")
def whole(built_once, tmp_path_factory):
    """A study with every table that the report draws. Tests change neither it nor its story."""
    import whole_study

    return _kept(built_once, "whole-study", lambda: whole_study.make(tmp_path_factory.mktemp("whole")))


@pytest.fixture(scope="session")
def whole_story(built_once, whole):
    from drawn import tell

    return _kept(built_once, "whole-story", lambda: tell(whole))


def _kept(built_once, name, make):
    """What `make` returns, made once for all processes."""

    def build(folder: Path) -> None:
        folder.mkdir()
        (folder / "object").write_bytes(pickle.dumps(make()))

    return pickle.loads((built_once(name, build) / "object").read_bytes())


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def _pages(browser):
    """Pages by window and options: a page that another test has left opens in a third of the time of a new one."""
    pages = defaultdict(list)
    yield pages
    for page in [page for own in pages.values() for page in own]:
        page.context.close()


@pytest.fixture
def visit(browser, _pages, request):
    """Open a page, the report by default; on leaving, fail on console errors, exceptions and further requests."""
    opened, problems, requests = [], [], []
    heard = {
        "console": lambda message: problems.append(f"{message.type}: {message.text}"),
        "pageerror": lambda error: problems.append(str(error)),
        "request": lambda request: requests.append(request.url),
    }

    def open_page(path: Path | None = None, place="", width=1280, **options):
        path = path or request.getfixturevalue("report")
        left = _pages[width, *sorted(options.items())]
        context = {"viewport": {"width": width, "height": 900}, **options}
        page = left.pop() if left else browser.new_context(**context).new_page()
        opened.append((left, page))
        for event, hear in heard.items():
            page.on(event, hear)
        page.goto(path.as_uri() + place)
        return page

    yield open_page
    for left, page in opened:
        for event, hear in heard.items():
            page.remove_listener(event, hear)
        page.evaluate("localStorage.clear()")
        page.emulate_media(media="null")
        page.mouse.move(0, 0)
        page.goto("about:blank")
        left.append(page)
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "blob:", "data:"))] == []
    assert sum(url.startswith("file:") for url in requests) == len(opened)
