"""The changes that are made to a module."""

import ast
import textwrap

import pytest

from tests.mutants.operators import Mutant, called_during_import, find_mutants


def mutants_of(source: str) -> list[Mutant]:
    return find_mutants("sample.py", ast.parse(textwrap.dedent(source)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a < b)", {"pass", "f(a <= b)"}),
        ("f(a is b)", {"pass", "f(a is not b)"}),
        ("f(a and b)", {"pass", "f(a or b)", "f(a)", "f(b)"}),
        ("f(not a)", {"pass", "f(a)"}),
        ("f(a + b)", {"pass", "f(a - b)"}),
        ("f(5)", {"pass", "f(6)"}),
        ("f(True)", {"pass", "f(False)"}),
        ("f('id')", {"pass", "f('XXid')"}),
        ("f('some words')", {"pass"}),
        ("f(f'{a} words')", {"pass"}),
        ("f(a=b)", {"pass", "f()"}),
        ("f({a, b})", {"pass", "f({a})", "f({b})"}),
        ("f({a: b})", {"pass", "f({})"}),
        ("f(a if b else c)", {"pass", "f(a)", "f(c)"}),
        ("f((a for a in b if c))", {"pass", "f((a for a in b))"}),
        ("f(any(a))", {"pass", "f(all(a))"}),
        ("a.b = c", {"pass"}),
        ("a = b", set()),
        ("a = f(a)", {"pass"}),
        ("a += b", {"pass", "a -= b"}),
        ("return a", {"return None"}),
        ("raise a", {"pass"}),
        ("log.info(a, b=5)", set()),
        ("assert a < b", set()),
        ("'''Docstring.'''", set()),
    ],
)
def test_each_kind_of_statement_has_its_mutants(before: str, after: set[str]) -> None:
    found = mutants_of(f"def g():\n    {before}")
    assert {each.after for each in found} == after
    assert {(each.function, each.before) for each in found} <= {("g", before)}


def test_compound_statements_have_mutants_of_their_headers() -> None:
    found = mutants_of(
        """
        async def g():
            while a:
                pass
            if b:
                pass
            async with c:
                pass
            try:
                pass
            except D:
                pass
            match e:
                case _ if f:
                    pass
        """
    )
    assert [(each.kind, each.before, each.after, each.lines.start) for each in found] == [
        ("condition", "while a:", "while False:", 3),
        ("condition", "if b:", "if True:", 5),
        ("condition", "if b:", "if False:", 5),
        ("context", "async with c:", "if True:", 7),
        ("handler", "except D:", "(no handler)", 11),
        ("guard", "case _ if f:", "case _:", 14),
    ]


def test_types_protocols_and_texts_of_objects_have_no_mutants() -> None:
    source = """
        __all__ = ["g"]
        Name = Alpha | Beta
        T = TypeVar("T", bound=C)
        a: dict[str, Literal["b"]]

        class P(Protocol):
            def g(self, a=1): ...

        class D:
            def __repr__(self):
                return str(5)

        def g(a: Literal["b"]) -> Annotated[int, 5]: ...
    """
    assert mutants_of(source) == []


def test_a_mutant_is_compiled_and_leaves_the_tree_as_it_was() -> None:
    tree = ast.parse("a = 1 < 2")
    (comparison, *_) = find_mutants("sample.py", tree)
    names: dict[str, object] = {}
    exec(comparison.compile(tree), names)  # noqa: S102 - the mutant of a constant
    assert names["a"] is True
    assert ast.unparse(tree) == "a = 1 < 2"


def test_methods_and_nested_functions_belong_to_the_outermost_function() -> None:
    source = """
        class C:
            @property
            def m(self):
                def inner():
                    f()
                return inner
    """
    assert {(each.function, each.function_line) for each in mutants_of(source)} == {("C.m", 3)}


def test_functions_that_run_during_the_import_are_found_through_others() -> None:
    source = """
        def a(): return b()
        def b(): return 1
        def c(): return a()
        def d(x=e()): return 1
        def e(): return 1
        A = a()
    """
    assert called_during_import(ast.parse(textwrap.dedent(source))) == {"a", "b", "e"}
