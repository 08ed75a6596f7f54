"""Requests to stop: signals, and the word of another thread."""

import os
import signal
import threading

import pytest

from infoflow.foundation import request_stop, sigterm_interrupts, stop_request


def _in_another_thread() -> None:
    thread = threading.Thread(target=request_stop)
    thread.start()
    thread.join()


def test_a_thread_asks_as_sigterm_does():
    with stop_request() as request:
        assert not request.received
        _in_another_thread()
        assert request.received
        _in_another_thread()  # once more changes nothing: it saves already


def test_outside_of_work_that_saves_the_request_interrupts():
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        _in_another_thread()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_inside_it_the_work_decides():
    with sigterm_interrupts():
        with stop_request() as request:
            os.kill(os.getpid(), signal.SIGTERM)
            assert request.received
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_second_interrupt_does_not_wait():
    with stop_request() as request:
        os.kill(os.getpid(), signal.SIGINT)
        assert request.received
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
