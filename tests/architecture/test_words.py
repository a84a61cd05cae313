"""Names are the field's: what a Kubernetes engineer greps for. docs/glossary.md has the words that are new."""

import ast
import re
from functools import cache

import pytest

from tests.architecture.structure import ROOT, module_of, sources
from tests.architecture.syntax import facts, own_variables

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
        "again", "begun", "born", "bought", "bound", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "driven", "fed",
        "found", "frozen", "given", "gone", "grown", "heard", "held", "hidden", "kept", "known", "laid", "led", "left", "lost", "made",
        "meant", "met", "paid", "said", "seen", "sent", "shown", "sold", "spent", "split", "spoken", "spread", "stolen", "struck", "taken",
        "taught", "thrown", "told", "torn", "woken", "won", "worn", "written",
    )
)  # fmt: skip
"""Words that say neither what something is nor what it does, as those in -ed: a name is a noun with a type or a role, or a verb."""
VERBS = frozenset(("embed", "exceed", "feed", "proceed", "seed", "speed", "split", "spread", "succeed"))
ESTABLISHED = frozenset(
    (
        ("lab/benchmarks/scheduler_perf/cluster.py", "namespaced"),  # as the API's own `namespaced`
        ("lab/experiments/document.py", "passed"),  # of a test
        ("lab/scenarios/runner.py", "passed"),
        ("lab/scenarios/measures/entry.py", "created"),  # the word of measures: `created.pods`
        ("lab/scenarios/measures/recorded.py", "created"),
        ("lab/scenarios/measures/scenario_measures.py", "created"),
        ("lab/scenarios/script/fault_verbs.py", "ended"),  # verbs of the scenario language
        ("lab/scenarios/script/play_verbs.py", "played"),
        ("lab/scenarios/script/verbs.py", "gone"),
        ("apiserver_fake/registry/validation/formats.py", "required"),  # upstream's `field.Required`
        ("scheduler/pod_groups/queue.py", "done"),  # upstream's `Done` of queues
        ("scheduler/queue/scheduling_queue.py", "done"),
        ("services/reconcile/workqueue.py", "done"),
        ("services/cel/addresses.py", "masked"),  # CEL's `masked()`
    )
)
"""Functions whose participle is the field's own word."""
VAGUE = frozenset(("found", "made", "said", "each"))
VAGUE_LINES = 8
"""A variable may be named so in a function that is shorter than this."""


def is_participle(name):
    """Return whether a name is one participle and nothing else."""
    word = name.strip("_").lower()
    return word not in VERBS and (word in PARTICIPLES or (word.endswith("ed") and len(word) > 3 and "_" not in word))


def test_no_module_and_no_class_is_named_by_a_participle_alone():
    modules = [str(path.relative_to(ROOT)) for path in sources() if path.stem in PARTICIPLES]
    classes = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        for name, _ in facts(path).classes
        if name.strip("_").lower() in PARTICIPLES - VERBS
    ]

    assert [] == modules + classes


def test_no_function_is_named_by_a_participle_alone():
    names = [
        (str(path.relative_to(ROOT)), function.name, function.line)
        for path in sources()
        for function in facts(path).functions
        if is_participle(function.name)
    ]

    assert [] == [f"{file}:{line}: {name}" for file, name, line in names if (file, name) not in ESTABLISHED]
    assert {(file, name) for file, name, _ in names} >= ESTABLISHED, "what is gone is established no longer"


def test_a_variable_of_a_long_function_is_named_by_what_it_holds():
    assert [] == [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources()
        for function in facts(path).functions
        if function.lines >= VAGUE_LINES
        for name, line in function.variables
        if name in VAGUE
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(found):\n    said = found", {"found", "said"}),
        ("def f():\n    for each in ():\n        pass", {"each"}),
        ("def f():\n    return [each for each in (made := ())]", {"made"}),
        ("def f():\n    def g():\n        found = 1", set()),
    ],
)
def test_variables_of_a_function_are_its_own(text, names):
    assert names == {name for name, _ in own_variables(ast.parse(text).body[0])}


@pytest.mark.parametrize(
    ("name", "is_one"), [("_shown", True), ("changed", True), ("on_changed", False), ("feed", False), ("spread", False)]
)
def test_a_participle_alone_says_neither_a_noun_nor_a_verb(name, is_one):
    assert is_one == is_participle(name)
