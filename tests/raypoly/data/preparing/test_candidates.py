"""A preparation holds what is said of its problems; the problems lie in a file beyond some number of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from raypoly.core.values import Problem, TestSuite
from raypoly.data.preparing.candidates import Candidate, ProblemBuffer, SourceFacts, content_hash


def problem(number: int) -> Problem:
    tests = TestSuite("stdin", f'[{{"input": "{"x" * (100 + number % 7)}", "output": "{number}"}}]')
    return Problem(f"p{number}", f"Say {number}.", "", tests, metadata={"tags": "math"})


def test_what_is_kept_comes_back_in_any_order_from_memory_and_from_a_file() -> None:
    for memory in (1 << 20, 1000):
        buffer = ProblemBuffer(memory)
        kept = [buffer.add(problem(number)) for number in range(50)]
        assert [kept[number]() for number in (49, 0, 25, 0)] == [problem(number) for number in (49, 0, 25, 0)]
        assert buffer.add(problem(50))() == problem(50), "one more after others were read"
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda read: read(), kept * 20))
        assert found == [problem(number) for number in range(50)] * 20


def test_a_candidate_is_its_problem_as_it_is_asked() -> None:
    one = Candidate.of(problem(1), SourceFacts("mine", 1), ProblemBuffer())
    assert (one.id, one.has_solution, one.problem) == ("p1", False, problem(1))
    asked = replace(one, make_prompt=lambda it: replace(it, prompt=f"{it.prompt}!", metadata={}))
    assert asked.problem == replace(problem(1), prompt="Say 1.!", metadata={})
    assert replace(asked, prompt="Say").problem.prompt == "Say"
    assert content_hash(one.problem) == content_hash(problem(1))
