"""What the page computes without drawing, asked in Chromium: YAML, Myers' difference, the filter, colours, words, ages."""

import difflib
import itertools
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x85"), max_size=12) | st.sampled_from(
    [
        "yes",
        "null",
        "012",
        "1e3",
        "2020-01-01",
        "a: b",
        "- a",
        "# c",
        "a\nb\n",
        " a",
        "a ",
        "",
        "0x1f",
        "1:30",
        "~",
        "=",
        "a\n\n",
        "\n",
        "é\u202e",
        "a\tb",
        "'",
        '"',
        "%",
        "@",
        "`x",
        "!t",
        "&a",
        "*b",
        "?",
        "|",
        ">",
        "{}",
        "[a]",
        "a,b",
        "-",
    ]
)
DOCUMENTS = st.dictionaries(
    TEXTS.filter(bool),
    st.recursive(
        TEXTS | st.integers(-(2**40), 2**40) | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS.filter(bool), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@pytest.fixture(scope="module")
def page(browser, replay):
    made = browser.page()
    made.open(replay)
    yield made
    made.close()


def many(strategy, count):
    """Draw the same examples each time; one question to the page for all of them."""
    drawn = []

    @settings(max_examples=count, deadline=None, database=None)
    @given(strategy)
    def draw(value):
        drawn.append(value)

    draw()
    return drawn


def test_a_document_printed_as_yaml_is_read_back_as_it_was(page):
    documents = many(DOCUMENTS, 200)
    # As JSON texts: the driver's own way of handing values over loses a key such as __proto__.
    printed = page.ask(
        "async (all) => { const {yaml} = await import('keplab/yaml.js'); return all.map((each) => yaml(JSON.parse(each))); }",
        [json.dumps(each) for each in documents],
    )

    for document, text in zip(documents, printed, strict=True):
        assert document == yaml.safe_load(text), text


def test_the_difference_is_a_shortest_one(page):
    line = st.sampled_from("abcde")
    pairs = many(st.tuples(st.lists(line, max_size=14), st.lists(line, max_size=14)), 200)
    found = page.ask(
        "async (all) => { const {diff} = await import('keplab/diff.js'); return all.map(([a, b]) => diff(a, b)); }",
        pairs,
    )

    for (a, b), rows in zip(pairs, found, strict=True):
        assert a == [row["text"] for row in rows if row["kind"] != "added"]
        assert b == [row["text"] for row in rows if row["kind"] != "removed"]
        assert [row["a"] for row in rows if row["a"]] == list(range(1, len(a) + 1))
        assert [row["b"] for row in rows if row["b"]] == list(range(1, len(b) + 1))
        assert sum(row["kind"] == "same" for row in rows) == common(a, b)


def common(a, b):
    """The length of the longest common subsequence, by the table."""
    above = [0] * (len(b) + 1)
    for each in a:
        row = [0]
        for at, other in enumerate(b):
            row.append(above[at] + 1 if each == other else max(above[at + 1], row[at]))
        above = row
    return above[-1]


def test_long_documents_are_compared_as_difflib_does(page):
    a = [f"line {number}" for number in range(3000)]
    b = [f"line {number}" if number % 500 else f"other {number}" for number in range(3000)]
    rows = page.ask("async ([a, b]) => (await import('keplab/diff.js')).diff(a, b)", [a, b])
    expected = [line for line in difflib.ndiff(a, b) if line[0] in "+-"]

    assert len(expected) == sum(row["kind"] != "same" for row in rows)


def test_words_after_a_colon_are_read_as_kubectl_reads_them(page):
    cases = {
        "po": {"kind": "po", "query": {}},
        "pods -n shop": {"kind": "pods", "query": {"ns": "shop"}},
        "pods -nshop web": {"kind": "pods", "query": {"ns": "shop", "q": "web"}},
        "pods --namespace=shop": {"kind": "pods", "query": {"ns": "shop"}},
        "deploy -A": {"kind": "deploy", "query": {}},
        "": None,
    }

    assert list(cases.values()) == page.ask(
        "async (all) => { const {kindWords} = await import('keplab/words.js'); return all.map(kindWords); }",
        list(cases),
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ns=shop web", ""),
        ("priority>=100 cpu<500m mem>1Gi", ""),
        ("phase=Gone", "phase is one of"),
        ("priority>high", '"high" is not a number'),
        ("colour=red", '"colour" is not a word of filters'),
    ],
)
def test_a_filter_is_read_or_says_what_is_wrong(page, text, error):
    found = page.ask("async (text) => (await import('keplab/filter.js')).parseFilter(text).error", text)

    assert error in found if error else found == ""


def test_a_number_has_what_is_counted_in_its_form(page):
    found = page.ask(
        "async () => { const {counted} = await import('keplab/format.js');"
        " return [counted(0, 'pod'), counted(1, 'pod'), counted(1200, 'pod'), counted(1, 'process', 'processes'), counted(2, 'process', 'processes')]; }"
    )
    assert ["0 pods", "1 pod", "1,200 pods", "1 process", "2 processes"] == found


def test_ages_are_kubectls(page):
    cases = {
        0: "0s",
        119: "119s",
        120: "2m",
        185: "3m5s",
        600: "10m",
        10800: "3h",
        11100: "3h5m",
        100000: "27h",
        200000: "2d7h",
        800000: "9d",
    }

    assert list(cases.values()) == page.ask(
        "async (all) => { const {age} = await import('keplab/format.js'); return all.map(age); }", list(cases)
    )


def test_cividis_begins_dark_blue_and_ends_yellow_and_grows_brighter(page):
    table = page.ask(
        "async () => { const {cividis} = await import('keplab/colours.js'); return Array.from({length: 256}, (_, i) => cividis(i / 255)); }"
    )
    brightness = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in table]

    assert table[0][2] > 70
    assert table[0][0] < 10
    assert table[-1][0] > 240
    assert table[-1][2] < 90
    assert all(after > before - 0.6 for before, after in itertools.pairwise(brightness))


def test_modules_are_named_by_the_import_map_alone(replay):
    """A relative import would work when it is served, and not in one file."""
    from lab.ui.vendor import STATIC

    relative = [
        f"{path.name}: {line}"
        for path in (STATIC / "js").rglob("*.js")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(("import", "export")) and ("'./" in line or "'../" in line)
    ]
    html_sinks = [
        path.name
        for path in (STATIC / "js").rglob("*.js")
        if "innerHTML" in path.read_text() or "dangerouslySet" in path.read_text()
    ]

    assert relative == []
    assert html_sinks == []


def test_cpu_sets_are_those_of_each_pods_newest_admission_at_the_moment(page):
    def admit(at, node, name, **data):
        return {"ev": "kubelet.admit", "t": at, "node": node, "obj": {"ns": "a", "name": name}, "data": data}

    lines = [
        admit(1, "n1", "old", cpus={"c": "0-1"}),
        admit(2, "n1", "old", cpus={"c": "4"}, memory_numas=[1]),
        admit(3, "n2", "elsewhere", cpus={"c": "0"}),
        admit(4, "n1", "shared"),
        admit(9, "n1", "later", cpus={"c": "6-7"}),
    ]
    script = """async ([lines, node, until]) => { const {allocations} = await import('keplab/cpus.js');
      return Object.fromEntries(allocations(lines, node, until)); }"""

    assert {"a/old": {"cpus": {"c": "4"}, "numas": [1]}} == page.ask(script, [lines, "n1", 5])
    assert {"a/old": {"cpus": {"c": "0-1"}, "numas": []}} == page.ask(script, [lines, "n1", 1.5])
    texts = ["0-3,8", "7", "", "2-1", "x"]
    numbers = "async (texts) => { const {cpuNumbers} = await import('keplab/cpus.js'); return texts.map(cpuNumbers); }"
    assert [[0, 1, 2, 3, 8], [7], [], [], []] == page.ask(numbers, texts)


def test_a_fault_is_as_long_on_the_time_line_as_it_lasted(page):
    def line(seq, at, ev, target, **data):
        return {"comp": "supervisor", "inc": "1", "seq": seq, "t": at, "ev": ev, "data": {"target": target, **data}}

    lines = [
        line(1, 1, "fault.inject", "kubelet/h0", what="pause", for_s=10),
        line(2, 2, "fault.inject", "scheduler", what="cut", for_s=0),
        line(3, 3, "fault.inject", "scheduler", what="kill", for_s=0),
        line(4, 4, "fault.heal", "kubelet/h0", what="pause"),
        line(5, 5, "fault.heal", "controllers", what="slow"),
    ]
    found = page.ask(
        """async (lines) => { const {markOf, withLengths} = await import('keplab/marks.js');
        return withLengths(lines.map(markOf)).map((mark) => [mark.label, mark.end ?? null, Boolean(mark.open)]); }""",
        lines,
    )

    assert [
        ["pause kubelet/h0", 4, False],
        ["cut scheduler", None, True],
        ["kill scheduler", None, False],
        ["slow of controllers healed", None, False],
    ] == found


def test_commands_that_break_something_are_marked_once_by_what_the_supervisor_did(page):
    lines = [
        {"comp": "ui", "inc": "1", "seq": 1, "t": 1, "ev": "ui.command", "data": {"command": command, "target": "a"}}
        for command in ("kill", "heal", "apply")
    ]
    script = "async (lines) => (await import('keplab/marks.js')).markOf && Promise.all(lines.map(async (line) => (await import('keplab/marks.js')).markOf(line)?.label ?? null))"

    assert [None, None, "apply a"] == page.ask(script, lines)


def test_final_scores_say_how_far_a_node_is_behind_and_which_plugins_made_that(page):
    scores = {"Fit": {"a": 90, "b": 50, "c": 90, "d": 50}, "Spread": {"a": 10, "b": 40, "c": 10, "d": 40}}
    final = {"a": 110, "b": 130, "c": 110, "d": 130}
    found = {"node": "c", "weights": {"Fit": 1, "Spread": 2}, "scores": scores, "final": final}
    script = """async (found) => { const {finalMatrix} = await import('keplab/matrix.js'), made = finalMatrix(found);
      return [made.winner, made.ties, made.rows.map((row) => [row.nodes, row.final, row.behind, row.because.map((each) => `${each.plugin}${each.by}`)])]; }"""

    assert [
        "c",
        ["b", "d"],
        [[["c"], 110, 0, []], [["b", "d"], 130, -20, ["Spread60", "Fit-40"]], [["a"], 110, 0, []]],
    ] == page.ask(script, found)
    del found["final"]["b"], found["node"]
    assert [[["d"], 130, 0, []], [["a", "c"], 110, 20, ["Spread-60", "Fit40"]], [["b"], None, None, []]] == page.ask(
        script, found
    )[2]
    assert ["", [], []] == page.ask(script, {})


def test_roles_are_filtered_by_their_number(page):
    columns = {"name": [1, 1, 1], "node": [-1, -1, -1], "role": [2, 2, 3], "role_number": [1, 2, 0]}
    found = page.ask(
        """async (columns) => { const {parseFilter} = await import('keplab/filter.js');
        const all = {nodes: {rows: 0, columns: {}}, pods: {rows: 3, columns}, strings: ['', 'p', 'deployment/web', 'pod/a']};
        return ['role=deployment/web#1', 'role~web', 'role!=pod/a', 'role=pod/a'].map((text) => { const {pods} = parseFilter(text).compile(all); return [0, 1, 2].map(pods); }); }""",
        columns,
    )

    assert [[False, True, False], [True, True, False], [True, True, False], [False, False, True]] == found
