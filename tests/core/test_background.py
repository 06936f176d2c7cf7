import threading

import pytest

from runner.core import background


def test_work_is_done_in_order_by_another_thread():
    done = []
    work = background.Background()
    for number in range(200):
        work.do(lambda number=number: done.append((number, threading.current_thread())))
    work.wait()
    assert [number for number, _ in done] == list(range(200))
    assert {thread for _, thread in done}.isdisjoint({threading.main_thread()})
    work.close()


def test_whoever_hands_over_too_much_waits_for_the_first():
    gate, handed = threading.Event(), []
    work = background.Background()

    def hand_over():
        for number in range(100):
            work.do(gate.wait)
            handed.append(number)

    thread = threading.Thread(target=hand_over)
    thread.start()
    thread.join(0.5)
    assert 1 < len(handed) < 100
    gate.set()
    thread.join(10)
    assert len(handed) == 100
    work.close()


def test_what_the_work_raises_comes_to_whoever_handed_it_over():
    def fail():
        raise OSError(28, "No space left on device")

    work = background.Background()
    work.do(fail)
    with pytest.raises(OSError, match="No space left"):
        work.wait()
    work.do(lambda: None)
    work.close()
