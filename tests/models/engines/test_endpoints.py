from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from threading import Barrier

from models.engines.endpoints import Endpoints


def test_the_least_busy_address_is_lent() -> None:
    endpoints = Endpoints(["a", "b"], most=9)
    with ExitStack() as stack:
        lent = [stack.enter_context(endpoints.lend()) for _ in range(4)]
    assert sorted(lent) == ["a", "a", "b", "b"]


def test_an_address_that_was_given_up_is_not_lent_until_it_is_taken_back() -> None:
    endpoints = Endpoints(["a", "b"], most=9)
    assert endpoints.give_up("a", "no answer")
    assert not endpoints.give_up("a", "again no answer")
    assert endpoints.working == ["b"]
    assert endpoints.faults == {"a": "again no answer"}
    with endpoints.lend() as address:
        assert address == "b"
    endpoints.take_back("a")
    assert endpoints.working == ["a", "b"]


def test_when_none_works_none_is_lent() -> None:
    endpoints = Endpoints(["a"], most=9)
    endpoints.give_up("a", "gone")
    with endpoints.lend() as address:
        assert address is None


def test_threads_that_borrow_at_once_spread_evenly() -> None:
    endpoints = Endpoints(["a", "b", "c"], most=4)
    all_hold = Barrier(12)

    def borrow(_: int) -> str | None:
        with endpoints.lend() as address:
            all_hold.wait(timeout=10)
            return address

    with ThreadPoolExecutor(12) as pool:
        for _ in range(5):
            assert sorted(pool.map(borrow, range(12))) == ["a"] * 4 + ["b"] * 4 + ["c"] * 4


def test_who_wants_more_than_the_most_waits_until_one_comes_back_or_none_works() -> None:
    endpoints = Endpoints(["a"], most=1)
    with ThreadPoolExecutor(2) as pool:

        def borrow() -> str | None:
            with endpoints.lend() as address:
                return address

        with endpoints.lend():
            waiting = pool.submit(borrow)
            assert not wait([waiting], timeout=0.1).done
        assert waiting.result(timeout=10) == "a"
        with endpoints.lend():
            waiting = pool.submit(borrow)
            endpoints.give_up("a", "gone")
            assert waiting.result(timeout=10) is None
