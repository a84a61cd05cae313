"""What a switch cites can be opened."""

import json

import pytest

from lab.cli.__main__ import run
from lab.cli.switch_sources import references


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("kubelet-unbinding 4.6", ["docs/spec/kubelet-unbinding.md 4.6"]),
        ("kubelet 6, 11", ["docs/spec/kubelet.md 6, 11"]),
        ("guarantees C7", ["docs/spec/guarantees.md C7"]),
        ("kep-5836 6.2", ["docs/spec/kep-5836-resize-preemption.md 6.2", "https://kep.k8s.io/5836"]),
        (
            "kep-1287-in-place-resize 3.2; preemption 4",
            ["docs/spec/kep-1287-in-place-resize.md 3.2", "https://kep.k8s.io/1287", "docs/spec/preemption.md 4"],
        ),
        (
            "upstream `pkg/features/kube_features.go`",
            ["https://github.com/kubernetes/kubernetes/blob/release-1.36/pkg/features/kube_features.go"],
        ),
        ("kubernetes-sigs/kube-scheduler-simulator", ["https://github.com/kubernetes-sigs/kube-scheduler-simulator"]),
        ("hearsay 3", []),
    ],
)
def test_a_source_names_pages_and_addresses(source, shown):
    assert shown == [str(each) for each in references(source)]


def test_the_document_has_text_and_address_of_each_reference(capsys):
    run(["switches", "resize.feasibility", "-o", "json"])
    (switch,) = json.loads(capsys.readouterr().out)["switches"]

    assert switch["references"] == [
        {"text": "docs/spec/kep-1287-in-place-resize.md 3.2", "url": "docs/spec/kep-1287-in-place-resize.md"},
        {"text": "kep.k8s.io/1287", "url": "https://kep.k8s.io/1287"},
    ]


def test_a_whole_name_shows_one_switch_with_all_addresses(capsys):
    run(["switches", "Emulate.version"])
    shown = capsys.readouterr().out.splitlines()

    assert shown[0] == "emulate.version"
    assert shown[-2].split() == [
        "OPEN",
        "https://github.com/kubernetes/kubernetes/blob/release-1.36/pkg/features/kube_features.go",
    ]


def test_part_of_a_name_lists_those_that_have_it_with_their_pages(capsys):
    run(["switches", "resize.feasib"])
    heads, row = capsys.readouterr().out.splitlines()

    assert heads.split()[0] == "NAME"
    assert "docs/spec/kep-1287-in-place-resize.md 3.2, kep.k8s.io/1287" in row
