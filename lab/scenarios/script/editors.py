"""Files for completion and colours in editors, generated from the language's declarations. Pure.

They form a folder that VS Code accepts as an extension: a TextMate grammar, which Sublime Text,
JetBrains' editors and `bat` read as well; snippets for every verb, setting, expectation and option; and
JSON schemas of files beside scenarios: node definitions and emulated DRA drivers.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kubelet.dra.emulated.definition import DriverDefinition
from kubelet.node.definition import NodeDefinition
from lab.scenarios.script.declaration import FILE, Declaration, Option
from lab.scenarios.script.expectation import FORMS, OPERATORS
from lab.scenarios.script.reference import EXPECT, plain, unless_given, value_of

LANGUAGE: Final = "keplab-scenario"
SCOPE: Final = "source.keplab-scenario"
GRAMMAR: Final = f"syntaxes/{LANGUAGE}.tmLanguage.json"
SNIPPETS: Final = f"snippets/{LANGUAGE}.json"
NODES_SCHEMA: Final = "schemas/nodes.schema.json"
DRIVER_SCHEMA: Final = "schemas/dra-driver.schema.json"
_MODES: Final = ("within", "for", "always")


def files(settings: Mapping[str, Declaration], verbs: Mapping[str, Declaration], version: str) -> dict[str, str]:
    """Return the folder's files by path. `version`: of the product."""
    documents = {
        "package.json": _package(version),
        "language-configuration.json": {"comments": {"lineComment": "#"}, "autoClosingPairs": [['"', '"'], ["{", "}"]]},
        GRAMMAR: grammar(settings, verbs),
        SNIPPETS: snippets({**settings, **verbs, **{f"{EXPECT} {name}": form for name, form in FORMS.items()}}),
        NODES_SCHEMA: _schema(list[NodeDefinition], "Node definitions, as keplab up --nodes-file takes them"),
        DRIVER_SCHEMA: _schema(DriverDefinition, "An emulated DRA driver, as keplab dra-driver --config takes it"),
    }
    return {path: json.dumps(document, indent=2, ensure_ascii=False) + "\n" for path, document in documents.items()}


def _package(version: str) -> dict[str, Any]:
    """Return the extension's manifest."""
    return {
        "name": LANGUAGE,
        "displayName": "keplab scenarios",
        "description": "Completion and colours for keplab's scenarios",
        "publisher": "keplab",
        "version": version,
        "engines": {"vscode": "^1.60.0"},
        "categories": ["Programming Languages", "Snippets"],
        "contributes": {
            "languages": [
                {
                    "id": LANGUAGE,
                    "aliases": ["keplab scenario"],
                    "extensions": [".scenario"],
                    "filenamePatterns": ["**/experiments/**/*.txt"],
                    "configuration": "./language-configuration.json",
                }
            ],
            "grammars": [
                {
                    "language": LANGUAGE,
                    "scopeName": SCOPE,
                    "path": f"./{GRAMMAR}",
                    "embeddedLanguages": {"meta.embedded.block.yaml": "yaml"},
                }
            ],
            "snippets": [{"language": LANGUAGE, "path": f"./{SNIPPETS}"}],
            "jsonValidation": [{"fileMatch": ["nodes.json", "*.nodes.json"], "url": f"./{NODES_SCHEMA}"}],
        },
    }


def _schema(kind: Any, title: str) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **msgspec.json.schema(kind)}


def _any_of(words: Iterable[str]) -> str:
    """Return the expression for one of these words, longer ones first so that none hides another."""
    return "|".join(re.escape(word).replace("\\-", "-") for word in sorted(words, key=lambda word: (-len(word), word)))


def grammar(settings: Mapping[str, Declaration], verbs: Mapping[str, Declaration]) -> dict[str, Any]:
    """Return a TextMate grammar. Its expressions are valid for both Oniguruma and Python's `re`."""
    everything = {**settings, **verbs}
    with_block = [name for name, each in everything.items() if each.block]
    options = {option.name for each in everything.values() for option in each.options}
    words: list[dict[str, Any]] = [
        {"name": "string.quoted.double", "match": r'"[^"]*"'},
        {"name": "string.quoted.single", "match": r"'[^']*'"},
        {"name": "variable.other.remembered", "match": r"\$[a-z_]+"},
        {
            "match": rf"(?<=\s)({_any_of(options)})(=)",
            "captures": {"1": {"name": "variable.parameter"}, "2": {"name": "keyword.operator.assignment"}},
        },
        {"name": "constant.numeric", "match": r"(?<=[\s=])\d+(?:\.\d+)?(?:ms|s|m|h|Ki|Mi|Gi|Ti|%)?(?=[\s,]|$)"},
    ]
    return {
        "name": "keplab scenario",
        "scopeName": SCOPE,
        "fileTypes": ["scenario"],
        "patterns": [
            {"name": "comment.line.number-sign", "match": r"^\s*#.*$"},
            {
                "begin": rf"^\s*({_any_of(with_block)})(?=\s)(.*?)<<\s*(['\"]?)([A-Za-z_][\w.-]*)\3\s*$",
                "beginCaptures": {
                    "1": {"name": "keyword.control"},
                    "2": {"patterns": words},
                    "4": {"name": "keyword.operator.heredoc"},
                },
                "end": r"^\s*\4\s*$",
                "endCaptures": {"0": {"name": "keyword.operator.heredoc"}},
                "contentName": "meta.embedded.block.yaml",
                "patterns": [{"include": "source.yaml"}],
            },
            {
                "begin": rf"^\s*({EXPECT})(?=\s|$)",
                "beginCaptures": {"1": {"name": "keyword.control.expect"}},
                "end": r"$",
                "patterns": [
                    {"name": "keyword.other.mode", "match": rf"(?<=\s)(?:{_any_of(_MODES)})(?=\s)"},
                    {"name": "support.function.form", "match": rf"(?<=\s)(?:{_any_of(FORMS)})(?=\s)"},
                    {"name": "keyword.operator.comparison", "match": rf"(?<=\s)(?:{_any_of(OPERATORS)})(?=\s)"},
                    *words,
                ],
            },
            _line("keyword.control.setting", settings, words),
            _line("support.function.verb", verbs, words),
        ],
    }


def _line(scope: str, names: Iterable[str], words: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "begin": rf"^\s*({_any_of(names)})(?=\s|$)",
        "beginCaptures": {"1": {"name": scope}},
        "end": "$",
        "patterns": words,
    }


def snippets(everything: Mapping[str, Declaration]) -> dict[str, Any]:
    """Return VS Code's snippets: one for every kind of line, and one for every option."""
    entries: dict[str, Any] = {}
    for name, declared in everything.items():
        entries[name] = {"prefix": name, "body": _body(name, declared), "description": plain(declared.meaning)}
        if declared.block:
            head = _body(name, declared, without=FILE)[0]
            body = [f"{head} <<EOF", "${0:" + _safe(declared.block) + "}", "EOF"]
            entries[f"{name} <<EOF"] = {
                "prefix": f"{name} block",
                "body": body,
                "description": f"{name} with a block: {declared.block}",
            }
    for option, names in _by_option(everything).items():
        unless = unless_given(option)
        about = f"{', '.join(names)}: {plain(option.meaning)}" + (f"; {unless}" if unless else "")
        entries[f"{names[0]} {option.name}="] = {
            "prefix": f"{option.name}=",
            "body": [f"{option.name}={_hole(1, option)}"],
            "description": about,
        }
    return entries


def _by_option(everything: Mapping[str, Declaration]) -> dict[Option, list[str]]:
    found: dict[Option, list[str]] = {}
    for name, declared in everything.items():
        for option in declared.options:
            found.setdefault(option, []).append(name)
    return found


def _hole(number: int, option: Option) -> str:
    """Return the place of an option's value: a choice where its values can be counted."""
    if option.type.values:
        return f"${{{number}|{','.join(option.type.values)}|}}"
    return f"${{{number}:{_safe(value_of(option))}}}"


def _safe(text: str) -> str:
    """Return a text for a placeholder, in which some signs have a meaning."""
    return re.sub(r"([\\$}])", r"\\\1", text)


def _body(name: str, declared: Declaration, without: str = "") -> list[str]:
    """Return the line with a place for each word that it needs."""
    words, number = [name], 0
    needed = [each for each in declared.arguments if each.count in ("one", "some") and each.name != without]
    for argument in [*needed, *(each for each in (declared.text,) if each is not None)]:
        number += 1
        words.append(f"${{{number}:{_safe(argument.name)}}}")
    for option in declared.options:
        if option.is_required:
            number += 1
            words.append(f"{option.name}={_hole(number, option)}")
    if declared.others is not None and declared.others.count == "some":
        words.append(f"${{{number + 1}:{_safe(declared.others.name)}}}")
    return [" ".join(words)]
