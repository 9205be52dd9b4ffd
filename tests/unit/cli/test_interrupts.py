"""Signals while a deploy is under way: the first waits for the step's end, the next does not."""

import os
import signal

import pytest

from gpuplan.cli.interrupts import SIGNALS, Interrupts


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_an_interrupt(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    with pytest.raises(KeyboardInterrupt), Interrupts():
        os.kill(os.getpid(), number)
    assert "what was started is taken back" in capsys.readouterr().err
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_a_step_ends_before_the_first_is_heard() -> None:
    done: list[str] = []

    def work() -> None:
        with Interrupts() as interrupts:
            with interrupts.uninterrupted():
                os.kill(os.getpid(), signal.SIGINT)
                done.append("the rest of the step")
            done.append("the next step")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest of the step"]


def test_the_second_does_not_wait() -> None:
    done: list[str] = []

    def work() -> None:
        with Interrupts() as interrupts, interrupts.uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the rest of the step")
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest of the step"]


def test_what_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
