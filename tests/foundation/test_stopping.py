"""Requests to stop: signals, and the word of another thread."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from infoflow.foundation import request_stop, sigterm_interrupts, stop_request


def _in_another_thread() -> None:
    thread = threading.Thread(target=request_stop)
    thread.start()
    thread.join()


def _working(ask: Callable[[], None]) -> bool:
    """Work that is asked to stop once; whether it heard and went on to its end before it was interrupted."""
    heard = False
    with suppress(KeyboardInterrupt), stop_request() as request:
        assert not request.received
        ask()
        heard = request.received
    return heard


def test_a_thread_asks_as_sigterm_does():
    assert _working(_in_another_thread)


def test_the_end_of_the_work_interrupts():
    with pytest.raises(KeyboardInterrupt), stop_request():
        _in_another_thread()


def test_outside_of_work_that_saves_the_request_interrupts():
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        _in_another_thread()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_inside_it_the_work_decides():
    with sigterm_interrupts():
        assert _working(lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_second_interrupt_does_not_wait():
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    assert not _working(twice)
