"""One thread that computes, newest request first: what an explorer answers to many at once."""

import asyncio
import json
import threading
import time
from contextlib import contextmanager

import pytest
from asking import SENTENCE

pytest.importorskip("starlette", reason='the extra is not installed: pip install "infoflow[explore]"')

WORDS = SENTENCE.split()


@pytest.fixture
def model(models):
    return models["masked"]


@pytest.fixture
def explorer(explorers, model):
    return explorers(model)


@pytest.fixture
def passes(model):
    """The number of tokens and of sentences of each pass, in their order."""
    seen = []
    hook = model.module.register_forward_pre_hook(
        lambda module, given, named: seen.append(tuple(named["input_ids"].shape[::-1])), with_kwargs=True
    )
    yield seen
    hook.remove()


class Page:
    """What asks an explorer in an event loop, many questions at once."""

    def __init__(self, explorer):
        self.app, self.host = explorer.app, f"127.0.0.1:{explorer.port}"
        self.token, self.cookie = explorer.address.split("token=")[1], ""

    async def enter(self):
        _, headers, _ = await self._ask("GET", "/", query=f"token={self.token}")
        self.cookie = dict(headers)[b"set-cookie"].decode().partition(";")[0]
        return self

    def ask(self, page, words, **fields):
        """The status and the text of an answer, to be awaited; a sentence of so many words."""
        text = " ".join((WORDS * 5)[:words])
        return asyncio.create_task(self._answer({"page": page, "text": text, **fields}))

    async def _answer(self, sent):
        status, _, body = await self._ask("POST", "/api/read", json.dumps(sent).encode())
        return status, body

    async def _ask(self, method, path, body=b"", query=""):
        headers = {"host": self.host, "content-type": "application/json", "cookie": self.cookie}
        scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(), "http_version": "1.1",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }  # fmt: skip
        answer, parts = {}, [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            return await asyncio.Event().wait()  # the page stays

        async def send(message):
            answer.setdefault("start", message)
            answer["body"] = answer.get("body", b"") + message.get("body", b"")

        await self.app(scope, receive, send)
        return answer["start"]["status"], answer["start"]["headers"], answer["body"]


class Gate:
    """A pass of the model that lasts until it is let go."""

    def __init__(self, model):
        self.begun, self.free = threading.Event(), threading.Event()
        self._hook = model.module.register_forward_hook(self)

    def __call__(self, *_):
        self._hook.remove()
        self.begun.set()
        assert self.free.wait(10)


async def blocked(page, model):
    """The worker's thread is busy with this."""
    gate = Gate(model)
    task = page.ask("other", 1)
    await asyncio.to_thread(gate.begun.wait, 10)
    return gate, task


async def waits():
    """What was asked so far has reached the explorer."""
    await asyncio.sleep(0.02)


def run(explorer, story):
    async def told():
        return await story(await Page(explorer).enter())

    return asyncio.run(asyncio.wait_for(told(), 60))


def tokens(words):
    """[CLS] and [SEP] stand around a sentence."""
    return (words + 2, 1)


def test_the_newest_of_a_page_replaces_the_older(explorer, model, passes):
    async def type_quickly(page):
        gate, task = await blocked(page, model)
        tasks = []
        for number in range(12):
            tasks.append(page.ask("page", 2 + number))
            await waits()
        gate.free.set()
        assert (await task)[0] == 200
        return await asyncio.gather(*tasks)

    answers = run(explorer, type_quickly)
    assert [status for status, _ in answers] == [409] * 11 + [200]
    assert all(b"newer request" in body for _, body in answers[:11])
    assert passes == [tokens(1), tokens(13)]


def test_the_newest_runs_first_and_lines_last(explorer, model, passes):
    """Of a sweep a part runs at once; the next ones, when nobody else waits."""

    async def many(page):
        gate = Gate(model)
        swept = page.ask("line", 6, sweep="heads")
        await asyncio.to_thread(gate.begun.wait, 10)
        tasks = []
        for number, name in enumerate(("first", "second", "third")):
            tasks.append(page.ask(name, 1 + number))
            await waits()
        other = Gate(model)
        gate.free.set()
        await asyncio.to_thread(other.begun.wait, 10)
        await waits()
        other.free.set()
        return await asyncio.gather(swept, *tasks)

    answers = run(explorer, many)
    assert [status for status, _ in answers] == [200] * 4
    assert len(answers[0][1].splitlines()) == 8
    single = [one for one in passes if one[1] == 1 and one != tokens(6)]
    assert single == [tokens(3), tokens(2), tokens(1)]
    lines = [place for place, one in enumerate(passes) if one[0] == 8]
    assert lines[-1] > passes.index(tokens(1))


def test_four_may_wait(explorer, model):
    async def many(page):
        gate, task = await blocked(page, model)
        tasks = [page.ask(f"page {number}", 2 + number) for number in range(6)]
        await waits()
        gate.free.set()
        await task
        return await asyncio.gather(*tasks)

    answers = run(explorer, many)
    assert [status for status, _ in answers] == [200] * 4 + [429] * 2
    assert b"busy" in answers[-1][1]


def test_whoever_is_gone_is_not_served(explorer, model, passes):
    async def leave(page):
        gate, task = await blocked(page, model)
        left = page.ask("gone", 2)
        await waits()
        left.cancel()
        await waits()
        gate.free.set()
        await task
        return await page.ask("next", 3)

    assert run(explorer, leave)[0] == 200
    assert passes == [tokens(1), tokens(3)]


def test_errors_reach_whoever_asked(explorer, model):
    @contextmanager
    def failing():
        hook = model.module.register_forward_hook(lambda *_: 1 / 0)
        yield
        hook.remove()

    async def fail(page):
        with failing():
            status, body = await page.ask("a", 2)
        assert (status, b"ZeroDivisionError" in body) == (500, True)
        return await page.ask("a", 2)

    assert run(explorer, fail)[0] == 200


def test_one_thing_at_a_time(explorer, model):
    running, most = 0, 0

    def begins(*_):
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)

    def ends(*_):
        nonlocal running
        running -= 1

    hooks = [model.module.register_forward_pre_hook(begins), model.module.register_forward_hook(ends)]

    async def many(page):
        return await asyncio.gather(*(page.ask(f"page {number}", 2 + number) for number in range(4)))

    assert [status for status, _ in run(explorer, many)] == [200] * 4
    for hook in hooks:
        hook.remove()
    assert (running, most) == (0, 1)


def test_stopping_settles_what_waits(explorers, model):
    before = threading.active_count()
    explorer = explorers(model)

    async def stop(page):
        gate, task = await blocked(page, model)
        waiting = page.ask("waits", 2)
        await waits()
        stopped = asyncio.create_task(asyncio.to_thread(explorer.stop))
        assert (await waiting)[0] == 503
        assert (await page.ask("late", 3))[0] == 503
        gate.free.set()
        await stopped
        return await task

    assert run(explorer, stop)[0] == 200
    assert threading.active_count() == before
