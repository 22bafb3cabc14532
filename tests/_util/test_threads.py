import contextlib
import itertools
import multiprocessing
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from spacetime_en._util import threads
from spacetime_en._util.threads import InOrder, one_thread, share


def squares(pieces):
    found = []
    share(pieces, lambda some: found.extend(piece**2 for piece in some))
    return sorted(found)


def in_a_new_thread(function, *arguments):
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("number", [1, 2, 3, 8])
@pytest.mark.parametrize("pieces", [0, 1, 2, 50])
def test_every_piece_is_done_once(set_threads, number, pieces):
    set_threads(number)
    assert squares(range(pieces)) == [k**2 for k in range(pieces)]


@pytest.mark.parametrize(("number", "pieces"), [(1, 9), (4, 1)])
def test_one_thread_or_one_piece_needs_no_other(set_threads, number, pieces):
    set_threads(number)
    where = set()
    share(range(pieces), lambda some: where.update(threading.get_ident() for _ in some))
    assert where == {threading.get_ident()}


def test_operators_have_one_thread_inside_and_the_callers_number_outside(set_threads):
    set_threads(3)
    inside = set()
    share(range(9), lambda some: inside.update(torch.get_num_threads() for _ in some))
    assert inside == {1}
    assert torch.get_num_threads() == 3
    assert in_a_new_thread(torch.get_num_threads) == 3


def test_another_number_for_threads_to_come_stays(set_threads, monkeypatch):
    """PyTorch gives new threads the number that was set last, by any thread."""
    monkeypatch.setattr(threads, "_pool", threads._pool.__wrapped__)  # threads of our own
    set_threads(3)
    in_a_new_thread(torch.set_num_threads, 2)
    share(range(9), lambda some: [*some])
    assert torch.get_num_threads() == 3
    assert in_a_new_thread(torch.get_num_threads) == 2


def test_an_error_is_the_callers_and_ends_the_work(set_threads):
    set_threads(2)
    begun = []

    def work(pieces):
        for piece in pieces:
            begun.append(piece)
            time.sleep(1e-3)
            if len(begun) >= 4:
                raise ValueError("the fourth")

    for _ in range(8):  # whichever thread it is
        begun.clear()
        with pytest.raises(ValueError, match="the fourth"):
            share(range(10**5), work)
        assert 4 <= len(begun) < 10**5
    assert squares(range(5)) == [0, 1, 4, 9, 16]


def test_ctrl_c_ends_the_work(set_threads):
    set_threads(2)
    begun = []

    def work(pieces):
        for piece in pieces:
            begun.append(piece)
            time.sleep(1e-3)
            if piece == 3:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        share(range(10**5), work)
    assert len(begun) < 10**5


def test_writing_into_tensors_of_a_caller_in_inference_mode(set_threads):
    set_threads(2)
    with torch.inference_mode():
        t = torch.zeros(6)
        share(range(6), lambda some: [t[k : k + 1].add_(k) for k in some])
        assert t.tolist() == [0, 1, 2, 3, 4, 5]
    t = torch.zeros(6)
    share(range(6), lambda some: [t[k : k + 1].add_(k) for k in some])
    assert not t.is_inference()
    assert t.tolist() == [0, 1, 2, 3, 4, 5]


def test_small_numbers_count_as_in_the_callers_thread(set_threads):
    set_threads(2)
    small = torch.tensor(1e-310, dtype=torch.float64)

    def found():
        products = set()
        share(range(9), lambda some: products.update((small * 1).item() for _ in some))
        return products

    assert found() == {1e-310}
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        assert found() == {0.0}
    finally:
        torch.set_flush_denormal(False)
    assert found() == {1e-310}


def test_several_callers_at_once(set_threads):
    def call(first, found):
        set_threads(2)
        found.append([squares(range(first, first + 20)) for _ in range(10)])

    found = [[] for _ in range(4)]
    callers = [threading.Thread(target=call, args=(k, found[k])) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [[[[n**2 for n in range(k, k + 20)]] * 10] for k in range(4)]


def test_one_thread_for_a_while(set_threads):
    set_threads(3)
    with contextlib.suppress(ZeroDivisionError), one_thread():
        assert torch.get_num_threads() == 1
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_what_was_made_is_handed_on_in_order(order):
    taken = []
    in_order = InOrder(taken.append)
    for number in order:
        in_order.put(number, f"piece {number}")
    assert taken == ["piece 0", "piece 1", "piece 2"]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(set_threads):
    set_threads(2)
    assert squares(range(5)) == [0, 1, 4, 9, 16]
    threads._starting.acquire()  # as if another thread were about to start some
    try:
        child = multiprocessing.get_context("fork").Process(target=_check_squares, daemon=True)
        child.start()
    finally:
        threads._starting.release()
    child.join(120)
    child.kill()
    assert child.exitcode == 0


def _check_squares():
    assert torch.get_num_threads() == 2
    assert squares(range(5)) == [0, 1, 4, 9, 16]


@pytest.mark.slow
def test_the_end_of_the_interpreter():
    """It ends although threads are waiting; later work runs in the caller's thread."""
    code = """
import atexit, torch
from spacetime_en._util.threads import share
torch.set_num_threads(2)
def run():
    found = []
    share(range(4), found.extend)
    print(sorted(found))
run()
atexit.register(run)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3]\n" * 2, "")
