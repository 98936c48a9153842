"""What a test always comes to: found where algebra tells, and never said of what depends on the input."""

import ast

import pytest

from raypoly.strategies.live_code.bindings import nodes
from raypoly.strategies.live_code.live_program import live_program
from raypoly.strategies.live_code.settling import CertainTests


def truth(test: str, before: str = "") -> bool | None:
    source = f"def f(a, n, m, s, t):\n    {before or 'pass'}\n    if {test}: return 1\n    return range(n, m)"
    tree = ast.parse(source)
    (found,) = (node.test for node in ast.walk(tree) if isinstance(node, ast.If))
    return CertainTests(nodes(tree)).truth(found)


@pytest.mark.parametrize(
    "test",
    [
        "n * n >= 0", "len(a) > -1", "n != n + 1", "(n + m) * (n - m) == n * n - m * m", "n % 5 < 5",
        "n & 3 in (0, 1, 2, 3)",
        "n * (n + 1) % 2 == 0", "not (n > 3 and n < 2)", "n >= 3 or n < 3", "max(a) >= min(a)", "len(set(a)) <= len(a)",
        "sorted(a)[0] <= sorted(a)[-1]", "sorted(a) == sorted(a)", "2 * n != 2 * m + 1", "abs(n) + 1 > 0",
        "ord(s) >= 0 and n == n",
    ],
)  # fmt: skip
def test_what_is_always_so_is_seen(test: str) -> None:
    assert truth(test) is True
    assert truth(f"not ({test})") is False


@pytest.mark.parametrize(
    ("test", "before"),
    [
        ("s + t != t + s", ""), ("n % 1 == 0", "n = n / 2"), ("n > 0", ""), ("n * m >= 0", ""), ("a[0] <= a[-1]", ""),
        ("sorted(a, key=len)[0] <= sorted(a, key=len)[-1]", ""), ("b[0] <= b[-1]", "b = sorted(a); b[0] = n"),
        ("b > -1", "b = 0; b -= n"), ("b[0] == 0", "b = [0] * n; c = b; c[0] = n"), ("g(n) == g(n)", ""),
        ("n * n % 3 == 1", ""), ("len(a) <= len(set(a))", ""), ("n > 3 and n < 5", ""), ("n > 3 or n < 2", ""),
        ("b == 0", "b = [0]; b.append(n); b = b[-1]"), ("a.pop() == a.pop()", ""), ("b", "b = 0; [b := x for x in a]"),
        ("r[0] == 0", "r = [[0] for _ in a]; [q.append(n) for q in r]"), ("n - m", ""), ("len(a) < len(s)", ""),
    ],
)  # fmt: skip
def test_what_depends_on_the_input_is_left(test: str, before: str) -> None:
    assert truth(test, before) is None


def test_deep_and_wide_source_is_read_in_bounded_time() -> None:
    wide = " + ".join(f"x{number}" for number in range(120))
    deep = "".join(f"{' ' * level}for i{level} in n:\n" for level in range(1, 12))
    source = f"def f(n):\n{deep}{' ' * 12}n = ({wide}) ** 2 % 7 == ({wide}) * ({wide})\n return n"
    assert live_program(source, "f").entry == "a"


@pytest.mark.parametrize("kind", ["ValueError", "MemoryError", "KeyError", "Exception"])
def test_a_try_that_nothing_can_leave_is_its_body(kind: str) -> None:
    code = f"def f(a, k):\n try:\n  n = k + k\n except {kind}:\n  a.sort()\n  return a[0]\n return n"
    assert "try" not in ast.unparse(live_program(code, "f").tree)


@pytest.mark.parametrize("risk", ["n = int(k)", "n = a[k]", "n = g(k)", "n = 1 // k", "n = a.index(k)"])
def test_a_try_that_may_be_left_stays(risk: str) -> None:
    code = f"def f(a, k):\n try:\n  {risk}\n except Exception:\n  return 0\n return n"
    assert "except" in ast.unparse(live_program(code, "f").tree)
