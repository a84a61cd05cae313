"""The scenario language is what its declarations say: nothing else is read, and every example of theirs holds."""

import ast
import inspect
import re
from contextlib import suppress

import pytest

from lab.scenarios.run import plan_of, simulate
from lab.scenarios.script import declaration, fault_verbs, nodes, scenario, verbs, workload
from lab.scenarios.script.declaration import split
from lab.scenarios.script.expectation import FORMS, MODES, OPERATORS, PATHS
from lab.scenarios.script.scenario import SETTINGS, ScriptError
from lab.scenarios.script.value_types import MEANINGS
from lab.scenarios.script.verbs import TOPICS, VERBS, read_scenario

DECLARED = {**SETTINGS, **VERBS, **{f"expect {name}": form for name, form in FORMS.items()}}
EXAMPLES = [
    pytest.param(text, id=f"{name}-{number}")
    for name, declared in DECLARED.items()
    for number, text in enumerate(declared.examples)
]


def lines_of(name, declared):
    """The lines of a declaration's own examples that begin with its name."""
    found = [line for text in declared.examples for line in text.splitlines() if line.split(" ")[0] == name]
    return [re.sub(r" <<EOF$", "", line) for line in found]


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_holds_and_breaks_no_invariant(text):
    result = simulate(read_scenario(text, "example.txt"), seed=1)

    assert [] == [f"line {j.line}: {j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert (result.error, result.violations) == ("", [])
    assert result.expectations, "an example expects something"


@pytest.mark.parametrize("name", DECLARED)
def test_everything_declares_its_topic_a_line_of_meaning_and_an_example(name):
    declared = DECLARED[name]

    assert declared.topic in TOPICS
    assert declared.meaning.endswith(".")
    assert declared.examples
    assert all(text.startswith("# ") for text in declared.examples)
    for option in declared.options:
        assert option.meaning
        assert option.type.values or option.type.name in MEANINGS or re.search(r"[A-Z]", option.type.name), option


def test_every_file_of_examples_is_one_of_something_declared():
    count = sum(len(declared.examples) for declared in DECLARED.values())

    assert count == len(list(declaration.EXAMPLES.iterdir()))


@pytest.mark.parametrize("name", [name for name, declared in DECLARED.items() if declared.options])
def test_every_option_stands_in_an_example_of_its_line(name):
    declared = DECLARED[name]
    own = {option.name for option in declared.options}
    # Workloads share the pod's options, and `node` those of `nodes`; there each has its example.
    shared = {option.name for option in workload.POD_OPTIONS} if name != "pod" else set()
    shared |= {option.name for option in nodes.NODE_OPTIONS} if name == "node" else set()
    shared |= {option.name for option in VERBS["job"].options} if name == "cronjob" else set()
    shown = {option for line in lines_of(name, declared) for option in split(line)[1]}

    assert own - shared - shown == set()


def document_of(name, options):
    if name == "nodes":
        return nodes.node_definition("n", options)
    return workload.MAKERS[name].make("x", options)


@pytest.mark.parametrize("name", [*workload.MAKERS, "nodes"])
def test_no_option_of_an_object_is_read_and_then_ignored(name):
    ignored, needed = [], {"schedule": "* * * * *"} if name == "cronjob" else {}
    for line in lines_of(name, DECLARED[name]):
        said = split(line)[1]
        for option, value in said.items():
            default = next(each.default for each in DECLARED[name].options if each.name == option)
            without = {**needed, **{other: text for other, text in said.items() if other != option}}
            if option in needed or value in (default, "besteffort"):  # a pod without requests is that anyhow
                continue
            with suppress(ValueError):  # the line may not do without it
                ignored += [f"{line}: {option}"] * (document_of(name, said) == document_of(name, without))

    assert ignored == []


def test_no_verb_reads_an_option_that_it_does_not_declare():
    """What a verb takes out of `step.values` or `step.options` by name is an option or argument of some declaration."""
    known = {each.name for declared in DECLARED.values() for each in (*declared.options, *declared.arguments)}
    read = set()
    for module in (verbs, fault_verbs, scenario, workload, nodes, declaration):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            match node:
                case ast.Subscript(
                    value=ast.Name(id="values" | "options") | ast.Attribute(attr="values" | "options"),
                    slice=ast.Constant(value=str(name)),
                ):
                    read.add(name)
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="options" | "values"), attr="get"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    read.add(name)

    assert len(read) > 60
    assert read - known == set()


@pytest.mark.parametrize("topic", [MODES, OPERATORS, PATHS], ids=["modes", "operators", "paths"])
def test_what_an_expectation_is_made_of_stands_in_an_example(topic):
    text = "\n".join(example for form in FORMS.values() for example in form.examples)
    missing = [word for word in topic if word.split(" ")[0].replace("KEY", "") not in text]

    assert [word for word in missing if word not in ("!=", "<", "<=", ">", "namespace", "annotation.KEY")] == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("pdo a cpu=1\n", 1, "no verb 'pdo' (did you mean pod?); there are: apply, as, autoscaler"),
        ("expct count pods == 1\n", 1, "no verb 'expct' (did you mean expect?)"),
        ("pod a cpus=1\n", 1, "pod has no option 'cpus' (did you mean cpu?); there are: claim-templates, claims"),
        ("pod a cpu=1 cpu=2\n", 1, "option cpu is given twice: cpu=1 and cpu=2"),
        ("pod a cpu=\n", 1, "cpu=: want cpu=QUANTITY"),
        ("pod a cpu\n", 1, "'cpu' has no value; want cpu=QUANTITY"),
        ("pod a cpu = 1\n", 1, "'cpu' has no value; want cpu=QUANTITY"),
        ("pod a cpu=1 # small\n", 1, "a comment has a line of its own"),
        ("pod\n", 1, "pod wants NAME, the object's name"),
        ("pod a memory=1GB\n", 1, "memory=1GB: quantity '1GB'"),
        ("pod a restart=never\n", 1, "restart=never: want Always, OnFailure or Never (did you mean Never?)"),
        ("wait 5\n", 1, "'5' is no duration; want for example 200ms, 5s or 2m"),
        ("wait 5sec\n", 1, "'5sec' is no duration"),
        ("gone pod/a limit=1min\n", 1, "limit=1min: '1min' is no duration"),
        ("deployment web replicas=two\n", 1, "replicas=two: want a whole number"),
        ("replicaset web strategy=Recreate\n", 1, "replicaset has no option 'strategy'"),
        ("cronjob tick cpu=1\n", 1, "cronjob wants schedule=TEXT"),
        ("scale deployment/web\n", 1, "scale wants replicas=INTEGER"),
        ("label pod/a\n", 1, "label wants KEY=VALUE"),
        ("taint n1 a:NoShedule\n", 1, "the effect one of NoSchedule"),
        ("patch pod/a {spec: 1}\n", 1, "is no JSON"),
        ("patch pod/a\n", 1, "want: patch KIND/NAME JSON"),
        ("expect cuont pods == 1\n", 1, "(did you mean count?)"),
        ("expect count podss == 1\n", 1, "no resource is called 'podss' (did you mean pods?)"),
        ("expect count pods = 1\n", 1, "'=' is no comparison"),
        ("expect each pods spec.nodename == n1\n", 1, "pods have no field spec.nodename (did you mean nodeName?)"),
        ("expect count pods phse=Running == 0\n", 1, "pods have no field phse (did you mean phase?)"),
        ("expect each pods spec.containers[main].imge ~ x\n", 1, "have no field spec.containers[main].imge"),
        ("expect created pods phase=Running == 1\n", 1, "`created` selects by name alone"),
        ("nodes n1 policy=single\n", 1, "policy=single: want none, best-effort"),
        ("nodes n1 devices=a.b/c:1\nwait 1s\n", 1, "need numa="),
        ("\tnodes n1 cpu=1\n\tpdo a\n", 2, "no verb 'pdo'"),
        ("nodes n1 cpu=1\r\npdo a\r\n", 2, "no verb 'pdo'"),
        ("pod a\nnodes n1 cpu=1\n", 2, "'nodes' belongs before the first act, which is on line 1"),
    ],
)
def test_a_mistake_is_one_line_with_its_place_and_what_is_wanted(text, line, message):
    with pytest.raises(ScriptError) as caught:
        plan_of(read_scenario(text, "t.txt"), seed=0)

    assert str(caught.value).startswith(f"t.txt:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n# words\n", "nodes n1 cpu=1\n"])
def test_a_file_in_which_nothing_happens_is_refused(text):
    with pytest.raises(ScriptError, match=r"t\.txt: nothing happens in this scenario"):
        read_scenario(text, "t.txt")
