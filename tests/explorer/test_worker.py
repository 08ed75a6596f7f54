"""One thread that computes, newest request first."""

import asyncio
import threading
import time

import pytest


@pytest.fixture
def worker():
    from infoflow.explorer._worker import Worker

    made = Worker()
    yield made
    made.stop()


class Gate:
    """Work that runs until it is let go."""

    def __init__(self):
        self.begun, self.free = threading.Event(), threading.Event()

    def __call__(self):
        self.begun.set()
        assert self.free.wait(10)
        return "gate"


async def blocked(worker):
    """The worker's thread is busy with this."""
    gate = Gate()
    task = asyncio.create_task(worker.do(("other",), gate))
    await asyncio.to_thread(gate.begun.wait, 10)
    return gate, task


def test_the_newest_of_a_page_replaces_the_older(worker):
    from infoflow.explorer._worker import Replaced

    done = []

    async def type_quickly():
        gate, task = await blocked(worker)
        tasks = []
        for number in range(12):
            tasks.append(asyncio.create_task(worker.do(("page", "read"), lambda number=number: done.append(number))))
            await asyncio.sleep(0)
        gate.free.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert await task == "gate"
        return results

    results = asyncio.run(type_quickly())
    assert done == [11]
    assert [type(one) for one in results] == [Replaced] * 11 + [type(None)]


def test_the_newest_runs_first_and_lines_last(worker):
    order = []

    async def many():
        gate, task = await blocked(worker)
        tasks = [asyncio.create_task(worker.do(("line",), lambda: order.append("line"), patient=True))]
        await asyncio.sleep(0)
        for name in ("first", "second", "third"):
            tasks.append(asyncio.create_task(worker.do((name,), lambda name=name: order.append(name))))
            await asyncio.sleep(0)
        gate.free.set()
        await asyncio.gather(task, *tasks)

    asyncio.run(many())
    assert order == ["third", "second", "first", "line"]


def test_four_may_wait(worker):
    from infoflow.explorer._worker import Busy

    async def many():
        gate, task = await blocked(worker)
        tasks = [asyncio.create_task(worker.do((name,), lambda: None)) for name in range(6)]
        await asyncio.sleep(0.01)
        gate.free.set()
        await task
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(one) for one in asyncio.run(many())] == [type(None)] * 4 + [Busy] * 2


def test_whoever_is_gone_is_not_served(worker):
    done = []

    async def leave():
        gate, task = await blocked(worker)
        left = asyncio.create_task(worker.do(("gone",), lambda: done.append("gone")))
        await asyncio.sleep(0.01)
        left.cancel()
        await asyncio.sleep(0.01)
        gate.free.set()
        await task
        await worker.do(("next",), lambda: done.append("next"))

    asyncio.run(leave())
    assert done == ["next"]


def test_errors_reach_whoever_asked(worker):
    async def fail():
        with pytest.raises(ZeroDivisionError):
            await worker.do(("a",), lambda: 1 / 0)
        return await worker.do(("a",), lambda: "still there")

    assert asyncio.run(fail()) == "still there"


def test_one_thing_at_a_time(worker):
    running, most = 0, 0

    def work():
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1

    async def many():
        await asyncio.gather(*(worker.do((name,), work) for name in range(4)))

    asyncio.run(many())
    assert most == 1


def test_stopping_settles_what_waits(worker):
    from infoflow.explorer._worker import ExplorerStopped

    async def stop():
        gate, task = await blocked(worker)
        waiting = asyncio.create_task(worker.do(("waits",), lambda: None))
        await asyncio.sleep(0.01)
        worker.stop()
        gate.free.set()
        with pytest.raises(ExplorerStopped):
            await waiting
        with pytest.raises(ExplorerStopped):
            await worker.do(("late",), lambda: None)
        assert await task == "gate"

    asyncio.run(stop())
    worker.join(5)
    assert not worker._thread.is_alive()
