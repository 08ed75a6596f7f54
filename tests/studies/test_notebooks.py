"""The example notebooks, executed on a real run by a kernel, and opened in headless Chromium without a network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbconvert", reason="nbconvert is not installed: pip install nbconvert nbclient ipykernel")
pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("run", "own-model-and-corpus", "one-sentence")
HOSTILE = '</script><img src=x onerror="document.title = 1">'
LOCAL = ("file:", "data:", "blob:", "about:")
KEYS = {"text/plain", "text/html", "image/png"}
NO_NETWORK = [f"--HTMLExporter.{name}_url=" for name in ("mathjax", "require_js", "mermaid_js", "jquery")]
"""nbconvert's own pages load these from elsewhere, unless told not to."""


@pytest.fixture(scope="module")
def executed(tiny_run, built_once) -> Path:
    """A folder with the notebooks' outputs and their pages, beside the run and the model that they read."""

    def build(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(tiny_run.path, folder / "runs" / "quick", ignore=shutil.ignore_patterns("work"))
        shutil.copytree(tiny_run.path / "models" / "masked-lm" / "seed-0", folder / "all-MiniLM-L6-v2")
        lines = ["the cat sees a dog", "a dog sleeps in the garden", f"the dog {HOSTILE} sleeps"]
        (folder / "my-corpus.txt").write_text("".join(f"{line} {n}\n" for n in range(20) for line in lines))
        for name in NAMES:
            shutil.copy(EXAMPLES / f"{name}.ipynb", folder)
        books = [f"{name}.ipynb" for name in NAMES]
        _nbconvert(folder, "--execute", "--inplace", *books)
        _nbconvert(folder, "--to", "html", *NO_NETWORK, *books)

    return built_once("notebooks", build)


def _nbconvert(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "nbconvert", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def _outputs(path: Path) -> list[dict]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_hold_only_what_notebook_files_may_hold_and_stay_small(executed, name):
    path = executed / f"{name}.ipynb"
    bundles = [output["data"] for output in _outputs(path) if "data" in output]
    assert {key for bundle in bundles for key in bundle} <= KEYS
    assert path.stat().st_size < 3_000_000
    assert [output["text"] for output in _outputs(path) if output.get("name") == "stderr"] == []


def test_files_and_pages_are_written(executed):
    assert (executed / "mutual-information.pdf").read_bytes().startswith(b"%PDF")
    assert "<!doctype html>" in (executed / "attention.html").read_text(encoding="utf-8")[:100].lower()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_a_notebook_shows_its_pictures_without_a_network(executed, browser, name, scheme, width):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.route("http*://**", lambda route: route.abort())
    page.on("request", lambda one: told.append(one.url) if not one.url.startswith(LOCAL) else None)
    page.goto((executed / f"{name}.html").as_uri())
    for frame in page.locator("iframe").all():
        frame.scroll_into_view_if_needed()
    for frame in page.frames[1:]:
        frame.wait_for_selector("svg, canvas", state="attached", timeout=30_000)
    widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert widths
    assert min(widths) > 100
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title() != "1"
    assert told == []
    page.close()
