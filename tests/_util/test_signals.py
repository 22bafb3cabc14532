"""Stop signals: handled inside the block, and by the previous handlers after it."""

import os
import signal
import threading

from spacetime_en._util.signals import stop_signals


def test_they_are_handled_in_the_block_only():
    received = []
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals(lambda number, frame: received.append(number)):
        os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals(lambda number, frame: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_other_threads_nothing_happens():
    handlers = []

    def run():
        with stop_signals(lambda number, frame: None):
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)]
