"""Names are the field's: what a Kubernetes engineer greps for. docs/glossary.md has the words that are new."""

import ast
import re
from functools import cache

import pytest

from tests.architecture.structure import ROOT, module_of, sources
from tests.architecture.syntax import facts

INSTEAD = {
    "event, record, report, notify or configured": ("tell", "tells", "told", "telling", "tellings", "teller", "tale"),
    "the actor: client, kubelet, caller, plugin": ("somebody", "nobody", "everybody", "whoever"),
    "component, or capacity": ("room", "rooms"),
    "result or outcome": ("verdict", "verdicts"),
    "scenario": ("story", "stories"),
    "desired or requested": ("wish", "wishes", "wished"),
    "core": ("heart", "hearts"),
    "on_..., observe or handle": ("hear", "hears", "heard", "hearing", "unheard"),
    "manager or handler": ("desk", "desks"),
    "dependencies or clients": ("wires",),
    "server, endpoint or entry point": ("door", "doors"),
    "unbind": ("giveback",),
    "allocated": ("promise", "promised", "promises"),
    "nominated-pod filtering": ("crowd", "crowding"),
    "out-of-tree plugins": ("outsider", "outsiders", "stranger", "strangers"),
    "disk image, orphans, supervision, corruption, recorder": (
        "platter", "stray", "strays", "tending", "spoiling", "spoil", "witness",
    ),
    "condition or reason": ("trouble", "troubles"),
    "rejection": ("noes",),
    "callbacks, lease record, ephemeral containers, final status": ("floor", "house", "seat", "guests", "finals"),
}  # fmt: skip
REFUSED = {word: instead for instead, words in INSTEAD.items() for word in words}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@cache
def words_of(name):
    """Return the words of a name in snake_case or CamelCase."""
    return [word.lower() for word in _WORD.findall(name)]


def names_in(path):
    """Yield each name that a module gives, with its line: the module's own, classes, functions, arguments, variables."""
    yield path.parent.name if path.stem == "__init__" else path.stem, 1
    yield from facts(path).names


def _modules_of_tests():
    return sorted(path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_words.py")


def refused(paths):
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}: say {REFUSED[word]}"
        for path in paths
        for name, line in names_in(path)
        for word in words_of(name)
        if word in REFUSED
    ]


def test_no_name_of_the_product_is_a_private_word():
    assert [] == refused(sources())


def test_no_name_in_the_tests_is_a_private_word():
    assert [] == refused(_modules_of_tests())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_tell", ["tell"]),
        ("StatusDesk", ["status", "desk"]),
        ("on_hearing", ["on", "hearing"]),
        ("APIServer", ["api", "server"]),
    ],
)
def test_a_name_is_read_word_by_word(name, words):
    assert words == words_of(name)


def test_every_module_has_one_dotted_name():
    modules = [module_of(path) for path in sources()]

    assert len(modules) == len(set(modules))


PARTICIPLES = frozenset(
    (
        "again", "answered", "asked", "attended", "begun", "done", "found", "given", "gone", "held", "kept", "known", "left", "made",
        "meant", "named", "said", "seen", "sent", "shown", "stated", "taken", "told", "wanted", "written",
    )
)  # fmt: skip
"""Words that say neither what something is nor what it does: a name is a noun with a type or a role, or a verb."""
FUNCTIONS_MAX = 231
"""Functions that are named so at present; the number only falls."""


def test_no_module_and_no_class_is_named_by_a_participle_alone():
    modules = [str(path.relative_to(ROOT)) for path in sources() if path.stem in PARTICIPLES]
    classes = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.strip("_").lower() in PARTICIPLES
    ]

    assert [] == modules + classes


def test_fewer_and_fewer_functions_are_named_by_a_participle_alone():
    found = [
        node.name
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.strip("_") in PARTICIPLES
    ]

    assert len(found) <= FUNCTIONS_MAX, f"{len(found)}; when there are fewer, lower FUNCTIONS_MAX"
