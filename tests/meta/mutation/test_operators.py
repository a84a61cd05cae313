"""Which changes a mutant may be made of, and which lines never become one."""

import ast

import pytest

from tests.mutation.operators import changes, compiles


def made(source, operator=""):
    """Return `before -> after` of each change of a source."""
    found = changes("a.py", source.encode())
    return [f"{change.before} -> {change.after}" for change in found if operator in change.operator]


@pytest.mark.parametrize(
    ("operator", "source", "expected"),
    [
        ("comparison", "def f(a, b):\n    x = a < b", {"a < b -> (a <= b)", "a < b -> (a >= b)"}),
        ("comparison", "def f(a, b):\n    x = a not in b", {"a not in b -> (a in b)"}),
        ("comparison", "def f(a):\n    x = a is None", {"a is None -> (a is not None)"}),
        ("arithmetic", "def f(a, b):\n    x = a + b * 2", {"a + b * 2 -> (a - b * 2)", "b * 2 -> (b // 2)"}),
        ("arithmetic", "def f(a):\n    a.n += 1", {"a.n += 1 -> a.n -= 1"}),
        ("boolean", "def f(a, b):\n    x = a and not b", {"a and not b -> (a or not b)", "not b -> (b)"}),
        ("boolean", "def f():\n    x = True", {"True -> False"}),
        ("constant", "LIMIT_S = 30.0", {"30.0 -> 31.0", "30.0 -> (29.0)"}),
        ("constant", "def f():\n    x = 'Running'", {"'Running' -> \"\""}),
        ("return value", "def f(a) -> bool:\n    return a.x", {"a.x -> not (a.x)"}),
        ("return value", "def f(a) -> int:\n    return a.x", {"a.x -> (a.x) + 1"}),
        ("return value", "def f(a) -> list[str]:\n    return a.x", {"a.x -> []"}),
        ("return value", "def f(a):\n    return a.x", {"a.x -> None"}),
        ("condition negation", "def f(a):\n    if a:\n        g()", {"a -> (not (a))"}),
        ("condition negation", "def f(a):\n    return [x for x in a if x.y]", {"x.y -> (not (x.y))"}),
        ("statement removal", "def f(a):\n    g(a)\n    a.x = 1", {"g(a) -> pass", "a.x = 1 -> pass"}),
        ("statement removal", "def f(a):\n    del a[1]", {"del a[1] -> pass"}),
        ("exception type", "def f():\n    raise Conflict('x')", {"Conflict('x') -> ZeroDivisionError('mutant')"}),
        (
            "exception type",
            "def f():\n    try:\n        g()\n    except (KeyError, OSError):\n        h()",
            {"KeyError -> ZeroDivisionError", "OSError -> ZeroDivisionError"},
        ),
        ("exception type", "def f():\n    with suppress(OSError):\n        g()", {"OSError -> ZeroDivisionError"}),
        ("default argument", "def f(a=3, *, b=False):\n    g()", {"3 -> 4", "3 -> (2)", "False -> True"}),
        ("slice", "def f(a):\n    x = a[n:]", {"n -> (n) + 1", "n -> (n) - 1"}),
        ("break/continue", "def f(a):\n    for x in a:\n        break", {"break -> continue"}),
        ("break/continue", "def f(a):\n    for x in a:\n        continue", {"continue -> break"}),
    ],
)
def test_each_operator_offers_its_changes(operator, source, expected):
    assert expected == set(made(source, operator))


@pytest.mark.parametrize(
    "source",
    [
        '"""A module\'s docstring."""',
        'class A:\n    """A class."""\n    x: int',
        'LIMIT = f()\n"""What it limits."""',
        "def f(a: int | None, b: 'Pod') -> dict[str, 'Pod']: ...",
        "x: Literal['a', 'b'] = f()",
        "async def f(self):\n    log.info('started', pods=3)",
        "async def f(self):\n    self._log.warning('late', after_s=2 + 3)",
        "class A:\n    def __repr__(self):\n        return 'A' + self.name",
        "@dataclass(frozen=True, slots=True)\nclass A:\n    x: int",
        "class A(Struct, frozen=True, kw_only=True):\n    x: int",
        "T = TypeVar('T')",
        "class Clock(Protocol):\n    def now(self, in_ms=False) -> float: ...",
        "__all__ = ['f', 'g']",
        "if TYPE_CHECKING:\n    X = 3",
        "if __name__ == '__main__':\n    main()",
        "import a.b\nfrom c import d",
        "x = option(name, help='what x is', metavar='X')",
        "x: int = setting(f(), 'what x is')",
        "x = gauge(name, 'What x is.', lambda each: each)",
    ],
)
def test_texts_for_people_types_and_logs_are_left_alone(source):
    assert [] == made(source)


def test_a_change_leaves_every_other_line_as_it_is():
    source = "def f(a):\n    # é: two bytes\n    if a == 'é' and a != '\\n':\n        return 1  # stays\n    return 2\n".encode()

    found = changes("a.py", source)

    assert len(found) >= 8
    for change in found:
        assert compiles(change, source)
        assert source.decode().splitlines()[change.line - 1].strip() == change.code
        kept = [line for line in change.apply(source).decode().splitlines() if line in source.decode().splitlines()]
        assert 4 == len(kept)
        assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(change.apply(source)))


def test_a_change_knows_its_function_or_what_its_statement_defines():
    source = b"class A:\n    def f(self, a=1):\n        return a + 1\nLIMIT = 3\n"

    found = {change.before: (change.scope, change.names) for change in changes("a.py", source)}

    assert {"a + 1": ("A.f", ("f",)), "3": ("", ("LIMIT",))} == {k: found[k] for k in ("a + 1", "3")}
