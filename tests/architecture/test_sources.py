"""Every rule that code, tests and documents cite can be looked up.

A citation is a specification with a place in it (`kubelet 5.3`, `guarantees N2`, `preemption, acceptance scenario 7`),
a code (AS-06, FM-K5, I13), a KEP (KEP-1287), a decision record (decision 0014) or a file of this repository. The
specifications are in docs/spec; a place is a heading, a numbered item or a numbered row of a table below one.
What follows `Source:`, and the source of a switch, may besides name upstream's code, by path or identifier.
"""

import re
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from services.api.switches import REGISTER

ROOT = Path(__file__).parents[2]
SPECIFICATIONS = ROOT / "docs" / "spec"
SUFFIXES = {".py", ".txt", ".md", ".yaml"}
APART = {".venv", ".git", ".keplab", "runs", "protos", "__pycache__", "LICENSE"}
OUTSIDE = (
    "etcd's",
    "kubernetes/",
    "kubernetes-sigs/",
    "kubernetes-csi/",
    "google/cel-",
    "google/re2",
    "KWOK",
    "Go's text/template",
    "the jq manual",
)

GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*(?:# ?)?)"
"""Between two words of prose; a line, also of a comment, may begin there."""
NUMBER = r"\d+(?:\.\d+)*"
CODE = r"(?:AS-\d+|FM-[A-Z]\d*|[XLT]-[A-Z]+\d*|[SWCKNDJIVPMEG]\d{1,2})"
PLACE = rf"(?:{CODE}|{NUMBER})"
NOT_AN_AMOUNT = rf"(?!\w|\.\w|{GAP}(?:ms|s|min|of|%|MiB)\b)"
NEXT = rf"(?:,|,?{GAP}and|{GAP}or|{GAP}to){GAP}"
PLACES = rf"{PLACE}(?:(?:{NEXT}{PLACE}|{GAP}{CODE}){NOT_AN_AMOUNT})*{NOT_AN_AMOUNT}"
SCENARIO = rf"(?:acceptance{GAP}scenarios?|acceptance|scenarios?)"
SECTION = rf"(?:(?:sections?|table){GAP}|§ ?)"

HEADING = re.compile(rf"#+ (?:({NUMBER})\.? )?(.*)")
ITEM = re.compile(r"(\d+)\. |\| \**(\d+)\** +\|")
DEFINITION = re.compile(rf"(?:\| \**|\*\*)({CODE})[,* ]")
FAMILY = re.compile(r"\b([XT]-[A-Z]+)\b")

BARE_CODE = re.compile(rf"(?<![\w`/.-]){CODE}(?![\w/-]|\.\w)")
BARE_PLACE = re.compile(rf"\b[Ss]ections?{GAP}({PLACES})|§ ?({PLACES})|\b({SCENARIO}){GAP}({PLACES})")
KEP = re.compile(r"\bKEP(?:-\w+|[ _]?\d+)")
DECISION = re.compile(rf"\bdecisions?{GAP}(\d+)\b(?:{GAP}and{GAP}(\d+)\b)?")
FILE = re.compile(
    r"(?<![\w/.(-])(?:apiserver_fake|docs|examples|experiments|kubelet|lab|protos|scheduler|services|tests)"
    r"/(?:[a-z0-9_.-]+/)*[a-z0-9_.-]+\.(?:json|md|proto|py|txt|yaml)\b"
)
MADE = re.compile(r"^cat > (\S+) <<", re.M)
"""A file that a page has its reader make."""
SOURCE = re.compile(r"\bSources?:\s+(.*?)(?=\.(?:[\s\"`]|$)|\n\s*\n|\"\"\"|\Z)", re.S)
QUOTED = re.compile(r"`([^`]+)`")
UPSTREAM_PATH = re.compile(r"(?:api|cmd|pkg|plugin|staging|test)/[\w./*-]+")
IDENTIFIER = re.compile(r"(?!.*\.go$)[A-Za-z]\w*(?:\.\w+)*(?:=\w+)?")
PROSE = re.compile(r'("""|\'\'\').*?\1|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|#[^\n]*(?:\n[ \t]*#[^\n]*)*', re.S)
HINT = re.compile(r"\d|Source|/")
TEST_NAME = re.compile(r"\bdef test_(\w+)")
CODES_IN_NAME = re.compile(r"(?:(?:as|fm|x)_[a-z]{0,2}\d+|[swckndjivm]\d{1,2})(?=_)")


@dataclass(frozen=True)
class Specification:
    """What of one document can be cited."""

    name: str
    places: frozenset[str]
    scenarios: frozenset[str]
    codes: frozenset[str]

    def has(self, place: str) -> bool:
        return place in self.places or place in self.codes or _is_family(place, self.codes)


def _is_family(code: str, codes: frozenset[str]) -> bool:
    return code[-1].isalpha() and any(known.startswith(code) for known in codes)


def read(name: str, text: str) -> Specification:
    """Return the places, acceptance scenarios and codes that a specification's text defines."""
    places: set[str] = set()
    scenarios: set[str] = set()
    codes: set[str] = set()
    section, is_list_of_scenarios = "", False
    for line in text.splitlines():
        if heading := HEADING.match(line):
            section, title = heading[1] or "", heading[2]
            is_list_of_scenarios = title.startswith("Acceptance scenarios")
            places.add(section)
            codes |= set(FAMILY.findall(title))
        elif item := ITEM.match(line):
            number = item[1] or item[2]
            places.add(f"{section}.{number}")
            if is_list_of_scenarios:
                scenarios.add(number)
        codes |= set(DEFINITION.findall(line[:40]))
    return Specification(name, frozenset(places - {""}), frozenset(scenarios), frozenset(codes))


class Library:
    """The specifications by the names they are cited by: that of the file, or kep-NNNN."""

    def __init__(self, specifications: list[Specification]) -> None:
        self.by_name = {one.name: one for one in specifications}
        self.by_name |= {one.name[:8]: one for one in specifications if one.name.startswith("kep-")}
        # What stands alone is meant as guarantees define it, whatever another document calls W2.
        in_order = sorted(specifications, key=lambda one: (one.name == "guarantees", one.name))
        self._homes = {code: one for one in in_order for code in one.codes}
        names = "|".join(sorted((re.escape(name) for name in self.by_name), key=len, reverse=True))
        names += r"|kep-\d{4}(?:-[a-z]+)*"
        places = rf"(?:({SCENARIO}){GAP}|{SECTION})?({PLACES})(?:,?(?:{GAP}and)?{GAP}({SCENARIO}){GAP}({PLACES}))?"
        self.cited = re.compile(rf"(?<![\w/.-])({names})(?:\.md)?`?,?{GAP}{places}")
        self.cited_after = re.compile(
            rf"({SCENARIO}|sections?){GAP}({PLACE}(?:{NEXT}{PLACE})*){GAP}of{GAP}(?:the{GAP})?`?({names})\b"
        )

    def home_of(self, code: str) -> Specification | None:
        """Return the specification that defines a code, or codes of its family (X-NR)."""
        return self._homes.get(code) or next((one for one in self.by_name.values() if one.has(code)), None)


@dataclass(frozen=True)
class Citation:
    """One thing cited at an offset of a text; `document` is None where it resolves to nothing."""

    offset: int
    words: str
    document: str | None


def _split(places: str) -> list[str]:
    return re.findall(PLACE, places)


def citations(
    text: str, library: Library, home: Specification | None = None, *, is_code: bool = False
) -> Iterator[Citation]:
    """Yield everything that a text cites; of code, its docstrings and comments.

    `home` is the specification that the text is, if it is one: there a section needs no document's name.
    """
    for start, end in _prose(text) if is_code else [(0, len(text))]:
        if not HINT.search(text, start, end):
            continue
        taken: list[tuple[int, int]] = []
        for found in library.cited.finditer(text, start, end):
            taken.append(found.span())
            name, kind, places, second_kind, second = found.groups()
            yield from _places(found.start(), library.by_name.get(name), name, kind, places)
            if second:
                yield from _places(found.start(), library.by_name.get(name), name, second_kind, second)
        for found in library.cited_after.finditer(text, start, end):
            taken.append(found.span())
            yield from _places(found.start(), library.by_name.get(found[3]), found[3], found[1], found[2])
        yield from _without_a_name(text, start, end, sorted(taken), library, home)


def _places(
    offset: int, document: Specification | None, name: str, kind: str | None, places: str
) -> Iterator[Citation]:
    is_scenario = bool(kind) and not str(kind).startswith("section")
    for place in _split(places):
        resolves = document is not None and (place in document.scenarios if is_scenario else document.has(place))
        words = f"{name}, scenario {place}" if is_scenario else f"{name} {place}"
        yield Citation(offset, words, document.name if document and resolves else None)


def _without_a_name(
    text: str, start: int, end: int, taken: list[tuple[int, int]], library: Library, home: Specification | None
) -> Iterator[Citation]:
    def is_taken(offset: int) -> bool:
        at = bisect(taken, (offset, len(text))) - 1
        return at >= 0 and offset < taken[at][1]

    for found in BARE_PLACE.finditer(text, start, end):
        if is_taken(found.start()):
            continue
        places = found[1] or found[2]
        if home is not None:
            yield from _places(found.start(), home, home.name, found[3], places or found[4])
        else:
            yield Citation(found.start(), found[0], None)
    for found in BARE_CODE.finditer(text, start, end):
        if not is_taken(found.start()):
            document = library.home_of(found[0])
            yield Citation(found.start(), found[0], document.name if document else None)
    for found in KEP.finditer(text, start, end):
        yield Citation(found.start(), found[0], "KEP" if re.fullmatch(r"KEP-[1-9]\d{1,3}", found[0]) else None)
    for found in DECISION.finditer(text, start, end):
        for number in filter(None, found.groups()):
            yield Citation(found.start(), f"decision {number}", "decision" if number in _decisions() else None)
    made = set(MADE.findall(text))
    for found in FILE.finditer(text, start, end):
        yield Citation(found.start(), found[0], "file" if (ROOT / found[0]).exists() or found[0] in made else None)
    for found in SOURCE.finditer(text, start, end):
        for clause in found[1].split(";"):
            yield from _source(found.start(), " ".join(clause.replace("\n#", "\n").split()), library)


def _source(offset: int, clause: str, library: Library) -> Iterator[Citation]:
    """Yield what a clause after `Source:` names of upstream's code, and the clause itself where it names nothing."""
    is_cited = bool(
        library.cited.search(clause) or KEP.search(clause) or DECISION.search(clause) or BARE_CODE.search(clause)
    )
    outside = any(name in clause for name in OUTSIDE)
    if "upstream" in clause and not outside:
        code = QUOTED.findall(clause.partition("upstream")[2])
        is_below_a_path = False
        for quoted in code:
            is_path = (is_below_a_path and quoted.endswith(".go")) or bool(UPSTREAM_PATH.fullmatch(quoted))
            is_below_a_path = is_below_a_path or is_path
            yield Citation(
                offset, f"upstream `{quoted}`", "upstream" if is_path or IDENTIFIER.fullmatch(quoted) else None
            )
        is_cited = is_cited or bool(code)
    if outside or not is_cited:
        yield Citation(offset, f"Source: {clause}", "outside" if outside else None)


def _prose(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a module's docstrings and comments are."""
    for found in PROSE.finditer(text):
        if found[0].startswith(('"""', "'''", "#")) and "noqa" not in found[0]:
            yield found.span()


def in_test_names(text: str, library: Library) -> Iterator[Citation]:
    """Yield what the names of tests cite: test_kubelet_unbinding_4_3_…, test_preemption_07_…, test_as_06_…."""
    documents = {name.replace("-", "_"): one for name, one in library.by_name.items()}
    longest_first = sorted(documents, key=len, reverse=True)
    for found in TEST_NAME.finditer(text):
        name = found[1]
        document = next((one for one in longest_first if re.match(rf"{one}_(?:[a-z]+_)?[a-z]?\d", name)), None)
        rest = name.removeprefix(f"{document}_")
        if document and (numbers := re.match(r"\d+(?:_\d+)*(?=_)", rest)):
            place = ".".join(part.lstrip("0") for part in numbers[0].split("_"))
            one = documents[document]
            resolves = place in one.places or place in one.scenarios
            yield Citation(found.start(), found[0], one.name if resolves else None)
            continue
        while code := CODES_IN_NAME.match(rest):
            words = code[0].upper().replace("_", "-")
            home = library.home_of(words)
            yield Citation(found.start(), f"{words} in {found[0]}", home.name if home else None)
            rest = rest[code.end() + 1 :]


@cache
def _decisions() -> set[str]:
    return {page.name[:4] for page in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}


@cache
def _library() -> Library:
    pages = sorted(SPECIFICATIONS.glob("*.md"))
    return Library([read(page.stem, page.read_text()) for page in pages if page.stem != "README"])


def _files() -> Iterator[Path]:
    for path in sorted(ROOT.iterdir()):
        if path.name in APART:
            continue
        for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if one.suffix in SUFFIXES and not APART & set(one.parts) and one != Path(__file__):
                yield one


def _in_the_repository() -> Iterator[tuple[str, Citation]]:
    library = _library()
    for path in _files():
        text = path.read_text()
        home = library.by_name.get(path.stem) if path.parent == SPECIFICATIONS else None
        is_code = path.suffix == ".py"
        found = [
            *citations(text, library, home, is_code=is_code),
            *(in_test_names(text, library) if path.name.startswith("test_") else ()),
        ]
        for citation in found:
            yield f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, citation.offset) + 1}", citation
    for switch in REGISTER:
        for clause in switch.source.split(";"):
            cited = list(citations(clause, library))
            for citation in cited or _source(0, clause, library):
                yield f"switch {switch.name}", citation


def test_every_source_that_is_cited_can_be_looked_up(capsys):
    found = list(_in_the_repository())
    figures = Counter(citation.document for _, citation in found)
    with capsys.disabled():
        counted = ", ".join(f"{name} {count}" for name, count in figures.most_common())
        sys.stdout.write(f"\n{len(found)} references: {counted}\n")

    lost = [f"{where}: {citation.words}" for where, citation in found if citation.document is None]
    assert not lost, "\n".join(("these cannot be looked up:", *lost))


# --- the test itself ---


LIBRARY = Library(
    [
        read("guarantees", "## 2. Store and API: S1 to S3\n| S3 | dense |\n### 8.4 Node rules (X-NR)\n| X-NR1 | own |"),
        read(
            "kubelet",
            "## 5. Admission\n### 5.3 Topology\n1. NUMA\n## 12. Acceptance scenarios\n\n9. **OutOfcpu.** A pod",
        ),
        read("kep-1287-in-place-resize", "## 3. API\n| # | Case |\n| 2 | two |\n## Acceptance scenarios\n1. One"),
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        "Source: kubelet 5.3.",
        "Source: kubelet 5, 5.3; guarantees S3 and X-NR1.",
        "the ninth scenario (kubelet 12.9; kubelet, acceptance scenario 9)",
        "acceptance scenarios 9 of kubelet",
        "kep-1287 3.2, kep-1287-in-place-resize 3, kep-1287, scenario 1",
        "dense (S3), by X-NR",
        "KEP-4381 and KEP-753; decision 0001; docs/spec/kubelet.md",
        "a kubelet 3 s late, controllers 0.6 ms late",
        "Source: upstream `pkg/kubelet/cm` (`state.go`), `PodRequests`.",
    ],
)
def test_what_can_be_looked_up_resolves(text):
    assert [] == [citation.words for citation in citations(text, LIBRARY) if citation.document is None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Source: kubelet 5.9.", "kubelet 5.9"),
        ("kubelet 5.3, 7", "kubelet 7"),
        ("guarantees S9", "guarantees S9"),
        ("(kubelet, acceptance scenario 8)", "kubelet, scenario 8"),
        ("as in section 4.", "section 4"),
        ("(acceptance scenario 9)", "acceptance scenario 9"),
        ("never (AS-99)", "AS-99"),
        ("forbidden (X-NR77)", "X-NR77"),
        ("kep-9999 3.1", "kep-9999 3.1"),
        ("KEP 1287", "KEP 1287"),
        ("KEP-12870", "KEP-12870"),
        ("decision 9999", "decision 9999"),
        ("decision 11", "decision 11"),
        ("docs/nothing.md", "docs/nothing.md"),
        ("Source: upstream `lifecycle/predicate.go`.", "upstream `lifecycle/predicate.go`"),
        ("Source: general knowledge.", "Source: general knowledge"),
    ],
)
def test_what_cannot_be_looked_up_is_reported(text, words):
    assert [words] == [citation.words for citation in citations(text, LIBRARY) if citation.document is None]


def test_code_is_read_for_its_docstrings_and_comments_only():
    code = '"""Source: kubelet 9."""\nX = "kubelet 8"  # dense,\n# kubelet 7\n'

    assert ["kubelet 9", "kubelet 7"] == [one.words for one in citations(code, LIBRARY, is_code=True)]


def test_a_specification_cites_its_own_sections_without_its_name():
    home = LIBRARY.by_name["kubelet"]

    assert ["kubelet", None] == [one.document for one in citations("section 5.3 and section 6", LIBRARY, home)]


def test_names_of_tests_are_read_too():
    names = "def test_kubelet_5_3_fits(): ...\ndef test_kubelet_09_full(): ...\ndef test_s3_dense(): ...\ndef test_kubelet_4_no(): ..."

    assert ["kubelet", "kubelet", "guarantees", None] == [one.document for one in in_test_names(names, LIBRARY)]
