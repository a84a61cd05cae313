"""The page, the command and the editors' files say all that the declarations say, and nothing else."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from kubelet.node.definition import NodeDefinition
from lab.cli.__main__ import run
from lab.cli.commands.verbs import markdown
from lab.scenarios.script import editors, reference
from lab.scenarios.script.nodes import NODE_OPTIONS, node_definition
from lab.scenarios.script.scenario import SETTINGS
from lab.scenarios.script.verbs import VERBS

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "scenario-language.md"
EVERYTHING = reference.every(SETTINGS, VERBS)
FILES = {path: json.loads(text) for path, text in editors.files(SETTINGS, VERBS, "1.2.3").items()}
GRAMMAR, SNIPPETS = FILES[editors.GRAMMAR], FILES[editors.SNIPPETS]


def test_the_page_is_as_the_declarations_are():
    assert markdown() == PAGE.read_text(), "run: keplab verbs -o markdown > docs/reference/scenario-language.md"


def test_the_page_has_a_section_an_option_row_and_the_examples_of_everything():
    page = PAGE.read_text()

    for name, declared in EVERYTHING.items():
        assert f"\n### {name}\n" in page
        assert all(f"```text\n{example}```" in page for example in declared.examples)
        assert all(f"\n| `{option.name}` | " in page for option in declared.options)
    named = set(re.findall(r"\]\(#([a-z-]+)\)", page))
    assert named <= {name.replace(" ", "-") for name in EVERYTHING}


def test_tables_of_the_page_have_as_many_cells_in_every_row():
    for table in re.findall(r"(?:^\|.*\n)+", PAGE.read_text(), re.M):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table


def test_verbs_lists_everything_with_its_topic(capsys):
    assert run(["verbs"]) == 0
    shown = capsys.readouterr().out

    assert [name for name in EVERYTHING if not re.search(rf"^{re.escape(name)}  ", shown, re.M)] == []


def test_one_verb_is_shown_with_its_options_defaults_and_examples(capsys):
    assert run(["verbs", "settle"]) == 0
    shown = capsys.readouterr().out

    assert shown.startswith("settle [quiet=DURATION] [limit=DURATION] [workloads=desired|any]\n")
    assert re.search(r"^quiet= +DURATION +5s +for how long no pod changed", shown, re.M)
    assert "  settle quiet=10s limit=200s\n" in shown


def test_expect_is_all_of_its_forms(capsys):
    assert run(["verbs", "expect", "-o", "json"]) == 0

    found = json.loads(capsys.readouterr().out)["verbs"]
    assert [each["name"] for each in found] == ["expect count", "expect each", "expect created"]
    assert found[0]["usage"].startswith("expect [within DURATION | for DURATION | always] count RESOURCE")


def test_a_verb_that_there_is_not_is_one_line_and_what_was_meant(capsys):
    assert run(["verbs", "deplyoment"]) == 2
    assert capsys.readouterr().err == (
        "keplab: no verb 'deplyoment' (did you mean deployment?); `keplab verbs` lists them\n"
    )


def test_the_folder_for_editors_is_written_whole(tmp_path, capsys):
    assert run(["verbs", "--editor", str(tmp_path / "x"), "-o", "json"]) == 0

    written = json.loads(capsys.readouterr().out)["files"]
    assert {path: json.loads((tmp_path / "x" / path).read_text()) for path in written}.keys() == FILES.keys()
    contributes = FILES["package.json"]["contributes"]
    named = [contributes["languages"][0]["configuration"], contributes["grammars"][0]["path"]]
    named += [contributes["snippets"][0]["path"], contributes["jsonValidation"][0]["url"]]
    assert all((tmp_path / "x" / path).is_file() for path in named)


def _expressions(value):
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("match", "begin"):
                yield each
            yield from _expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from _expressions(each)


def _begins(line):
    """Return the scopes of the rules that a line begins."""
    found = []
    for rule in GRAMMAR["patterns"]:
        if match := re.match(rule.get("begin") or rule["match"], line):
            scope = rule.get("name") or rule["beginCaptures"]["1"]["name"]
            found.append((scope, match))
    return found


def test_the_grammars_expressions_can_be_read():
    expressions = [re.compile(each) for each in _expressions(GRAMMAR)]

    assert len(expressions) > 8
    # What ends a block is the word that began it.
    (block,) = (rule for rule in GRAMMAR["patterns"] if "contentName" in rule)
    begun = re.match(block["begin"], "apply <<'END'")
    assert re.match(block["end"].replace(r"\4", re.escape(begun[4])), "  END ")
    assert begun[1] == "apply"


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*/*.txt"))[::7], ids=lambda path: path.stem)
def test_the_grammar_knows_every_line_of_a_shipped_scenario(path):
    lines, ends = path.read_text().splitlines(), None
    for line in lines:
        if ends is not None:
            ends = None if line.strip() == ends else ends
            continue
        if line.strip():
            rules = _begins(line)
            assert rules, line
            assert rules[0][0] == "comment.line.number-sign" or rules[0][1][1] == line.split()[0]
            ends = rules[0][1][4] if line.rstrip().endswith("<<EOF") else None


def test_the_grammar_and_the_snippets_have_every_name_and_option():
    words = json.dumps(GRAMMAR)
    prefixes = {each["prefix"] for each in SNIPPETS.values()}
    options = {option.name for declared in EVERYTHING.values() for option in declared.options}

    assert [name for name in EVERYTHING if name.split()[-1] not in words or name not in prefixes] == []
    assert [name for name in options if f"{name}=" not in prefixes] == []
    variables = re.search(r"\(\?<=\\s\)\((.*?)\)\(=\)", next(e for e in _expressions(GRAMMAR) if "(=)" in e))[1]
    assert {word.replace("\\", "") for word in variables.split("|")} == {
        option.name for declared in (*SETTINGS.values(), *VERBS.values()) for option in declared.options
    }


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_is_a_line_with_numbered_places(name):
    snippet = SNIPPETS[name]
    body = "\n".join(snippet["body"])
    numbers = [int(number) for number in re.findall(r"\$\{(\d+)[:|]", body)]

    assert snippet["prefix"]
    assert snippet["description"]
    assert sorted(set(numbers) - {0}) == list(range(1, len(set(numbers) - {0}) + 1))
    assert body.count("${") == len(numbers)


def test_schemas_describe_what_is_read():
    nodes = FILES[editors.NODES_SCHEMA]["$defs"]["NodeDefinition"]
    own = {field.encode_name for field in msgspec.structs.fields(NodeDefinition)}

    assert nodes["properties"].keys() == own
    assert nodes["additionalProperties"] is False
    assert FILES[editors.DRIVER_SCHEMA]["$defs"]["DriverDefinition"]["properties"].keys() >= {"name", "devices"}
    made = node_definition("n1", {"cpu": "4", "numa": "2x2", "shutdown": "30s"})
    assert made.keys() <= own


def test_an_option_of_a_node_names_the_field_it_sets():
    own = {field.encode_name for field in msgspec.structs.fields(NodeDefinition)}

    for option in NODE_OPTIONS:
        for field in re.split(r", ", option.field):
            head = re.split(r"[.…]", field)[0]
            assert any(each.startswith(head) for each in own), (option.name, field)
