"""Why a pod is where it is, in the page of one file, at every version: what a server answers about the same recording."""

import base64
import gzip
import json
import re

import pytest

from lab.recordings.reader import Recording
from lab.ui import documents
from services.api.errors import NotFound
from tests.browser import recorded

NEITHER = {"since_s", "rv", "pool", "decisions"}
"""Of when something was found, what the page's columns say, and what is the same at all times."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = recorded.record(tmp_path_factory.mktemp("whys") / "a.keprec", recorded.some_history())
    with Recording.open(path) as found:
        yield found


@pytest.fixture(scope="module")
def in_file(tmp_path_factory, recording):
    page = recorded.page_of(tmp_path_factory.mktemp("page"), recording.path)
    (packed,) = re.findall(r'id="replay-[^"]*-documents"[^>]*>([^<]*)<', page.read_text())
    found = json.loads(gzip.decompress(base64.b64decode(packed)))
    return {name.removeprefix("explain/"): each for name, each in found.items() if name.startswith("explain/")}


def at(found, rv):
    """What the page makes of the versions up to one of them."""
    merged = {}
    for each in found["at"]:
        if each["rv"] <= rv:
            merged |= each
    return {name: value for name, value in merged.items() if name not in NEITHER}


def served(recording, pod, rv):
    try:
        found = documents.explain(recording, *pod.split("/"), rv)
    except NotFound:
        return {}
    return {name: value for name, value in found.items() if name not in NEITHER}


def test_the_file_says_at_each_version_what_a_server_says(recording, in_file):
    stops = [version.rv for version in recording.versions() if version.group_end]
    differing = [(pod, rv) for pod in in_file for rv in stops if at(in_file[pod], rv) != served(recording, pod, rv)]

    assert len(in_file) > 40
    assert differing == []


def test_a_version_holds_only_what_is_other_than_before(in_file):
    for found in in_file.values():
        first, *rest = found["at"]
        assert {"node", "phase", "outcome"} <= first.keys()
        for each in rest:
            assert each.keys() - {"rv", "since_s"}
            assert len(each) < len(first)
