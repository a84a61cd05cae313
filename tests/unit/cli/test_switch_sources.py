"""What a switch cites can be opened."""

import pytest

from services.cli.switch_sources import references


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
