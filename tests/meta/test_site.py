"""The site of documents: every link and anchor leads somewhere, what is generated lacks nothing, and it opens from disk without a network."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli.switch_sources import SPECIFICATIONS, references
from lab.scenarios.findings import findings_of
from services.api.switches import REGISTER

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = sorted({path.parent for path in (ROOT / "experiments").rglob("*.txt")})
ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc(?:set)?=["']?(?:https?:)?//"""
    r"""|<link\b[^>]*rel=["'](?:stylesheet|preload|icon|preconnect|dns-prefetch)["'][^>]*href=["'](?:https?:)?//"""
    r"""|@import|url\(["']?(?:https?:)?//|<object\b[^>]*data=["']?(?:https?:)?//"""
)
"""What a browser would fetch from another place to show a page; a link that a reader may follow is none."""


def _sphinx(*words, source=ROOT):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "--keep-going",
            "-c",
            str(DOCS),
            *words[:-1],
            str(source),
            words[-1],
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


@pytest.fixture(scope="module")
def doctrees(tmp_path_factory):
    """Every page, read and its references resolved, as `make docs` does before it writes HTML."""
    folder = tmp_path_factory.mktemp("site")
    done = _sphinx("-b", "dummy", "-d", str(folder / "doctrees"), str(folder / "dummy"))
    assert done.returncode == 0, done.stderr
    return folder / "doctrees"


@pytest.fixture(scope="module")
def reference():
    return _generator("reference")


def _generator(name):
    """Return the module of docs/_sphinx that generates pages."""
    sys.path.insert(0, str(DOCS / "_sphinx"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


@pytest.mark.timeout(300)
def test_every_link_and_anchor_of_every_page_leads_somewhere(doctrees):
    assert (doctrees / "docs" / "README.doctree").exists()


@pytest.mark.timeout(300)
def test_pages_open_from_disk_and_fetch_nothing_from_elsewhere(doctrees, tmp_path):
    pages = [str(DOCS / name) for name in ("README.md", "experiments.md", "how-to/explore.md")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", DOCS, "-d", doctrees, ROOT, tmp_path, *pages],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    texts = {path: path.read_text() for suffix in ("html", "css", "js") for path in tmp_path.rglob(f"*.{suffix}")}
    fetching = [
        f"{path.relative_to(tmp_path)}: {found[0]}" for path, text in texts.items() if (found := ELSEWHERE.search(text))
    ]

    assert len(texts) > 10
    assert [] == fetching
    assert 'src="../searchindex.js"' in texts[tmp_path / "docs" / "README.html"] or "searchindex.js" in "".join(
        texts.values()
    )
    assert (tmp_path / "docs" / "pictures" / "race.svg").exists()


@pytest.mark.timeout(120)
def test_a_page_that_leads_nowhere_is_noticed(tmp_path):
    (tmp_path / "page.md").write_text("# A\n\n[b](nothing.md)\n\n[c](#nowhere)\n\n[d](other.md#not-there)\n")
    (tmp_path / "other.md").write_text("# B\n\n[a](page.md#a) and [itself](#b)\n")
    options = ("-D", "root_doc=page", "-D", "include_patterns=page.md,other.md", "-D", "exclude_patterns=out")

    done = _sphinx("-b", "dummy", *options, str(tmp_path / "out"), source=tmp_path)

    assert done.returncode != 0
    lost = [line for line in done.stderr.splitlines() if "xref_missing" in line]
    assert {"nothing.md", "nowhere", "not-there"} == set(re.findall("nothing.md|nowhere|not-there", "\n".join(lost)))


def test_a_mark_that_nothing_generates_is_noticed(reference):
    sys.path.insert(0, str(DOCS / "_sphinx"))
    try:
        import pages
    finally:
        sys.path.pop(0)

    with pytest.raises(KeyError, match="nothing"):
        pages.fill(None, "page", ["<!-- generated: nothing -->"])


def test_a_page_that_would_fetch_something_is_noticed():
    fetched = (
        '<script defer src="https://x.io/a.js">',
        '<link rel="stylesheet" href="//x.io/a.css">',
        "a{background:url(https://x.io)}",
    )

    assert all(ELSEWHERE.search(each) for each in fetched)
    assert not ELSEWHERE.search('<a href="https://x.io">x</a> <link rel="canonical" href="https://x.io">')


def test_the_reference_has_every_command(reference):
    from lab.cli.__main__ import cli

    text = reference.commands()

    for name in cli.list_commands(None):
        assert f"\n## keplab {name}\n" in text
    assert "\n### keplab bench scheduler\n" in text
    assert "--seeds INTEGER" in text


def test_the_reference_has_every_switch_with_a_source_that_can_be_opened(reference):
    text = reference.switches()

    assert [] == [switch.name for switch in REGISTER if f"### {switch.name}\n" not in text]
    assert [] == [switch.name for switch in REGISTER if not references(switch.source)]
    assert "[kubelet-unbinding 4.6](../spec/kubelet-unbinding.md#46-capability-handshake)" in text
    assert "[kep.k8s.io/5836](https://kep.k8s.io/5836)" in text


def test_the_pages_that_sources_name_are_those_of_the_specifications():
    assert sorted(SPECIFICATIONS) == sorted(path.stem for path in (DOCS / "spec").glob("*.md") if path.stem != "README")


def test_the_reference_has_every_measure_and_invariant(reference):
    from lab.scenarios.invariants.auditor import ELSEWHERE, checks
    from lab.scenarios.measures.register import MEASURES

    assert [] == [one.name for one in MEASURES if f"`{one.name}`" not in reference.measures()]
    assert [] == [check.id for check in checks() if f"## {check.id}: " not in reference.invariants()]
    assert [] == [name for name in ELSEWHERE if f"| {name} |" not in reference.invariants()]


def test_the_reference_has_every_kind_that_is_served(reference):
    from apiserver_fake.extensions.register import whole_catalogue

    text = reference.kinds()
    served = [one.resource for version in whole_catalogue().served_versions.values() for one in version.values()]

    assert len(served) > 60
    assert [] == [
        each.plural for each in served if f"| `{each.plural}` |" not in text or f"`{each.version}`" not in text
    ]


def test_the_reference_has_every_metric_that_a_component_declares(reference):
    declared = re.compile(r"""\b(?:counter|gauge|histogram)\(\s*"([a-z_:]+)"\s*,""")
    packages = ("apiserver_fake", "claim_controller", "kubelet", "lab", "scheduler", "services")
    files = [path for name in packages for path in (ROOT / name).rglob("*.py")]
    names = {name for path in files for name in declared.findall(path.read_text())}

    text = reference.metrics()
    assert len(names) > 100
    assert [] == [name for name in sorted(names) if f"| `{name}` |" not in text]


def test_a_folder_of_experiments_without_a_readme_is_listed_without_a_link(tmp_path, monkeypatch):
    """The site can be built while somebody writes an experiment."""
    indexes = _generator("indexes")
    monkeypatch.setattr(indexes, "EXPERIMENTS", tmp_path)
    monkeypatch.setattr(indexes, "ROOT", tmp_path)
    for name in ("begun", "finished"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.txt").write_text("# A title\nnodes n1\nwait 1s\n")
    (tmp_path / "finished" / "README.md").write_text("# Finished\n\nFinding: all is well.\n")

    text = indexes.experiments()

    assert "## begun\n\n**No finding is written down.**\n\nOne scenario in `experiments/begun`:" in text
    assert "One scenario in [experiments/finished](../experiments/finished/README.md):" in text


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_experiment_has_a_finding_in_one_sentence_and_names_scenarios_that_exist(folder):
    found = findings_of(folder)
    scenarios = {path.stem for path in folder.glob("*.txt")}

    assert found.finding.endswith(".")
    assert len(found.finding) <= 240
    assert set() == set(found.of_scenario) - scenarios


def test_each_admission_plugin_is_named_where_the_reference_says_that_it_is_or_it_says_why_not():
    plugins = _generator("admission_plugins").PLUGINS

    assert len({each.name for each in plugins}) == len(plugins) == 27  # as many as upstream's list has in 1.36
    missing = [each.name for each in plugins if each.module and each.name not in (ROOT / each.module).read_text()]
    assert missing == []
    assert [each.name for each in plugins if not each.module and not each.note.startswith("not here: ")] == []
