"""What stages may change of metadata is what their patches name."""

import pytest

from services.api.identity import StageFields, may_change
from services.kwok.stages.document import load_stages, read_stages
from services.kwok.stages.rights import rights_of

HEAD = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: s}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchLabels: {a: b}}
  next:
"""
TWO_LINES = """
    patches:
    - template: |
        metadata:
          annotations:
            {{ if .metadata.name }}
            one: a
            {{ end }}
            two: b
"""


def rights(text):
    return rights_of(read_stages([("s.yaml", HEAD + text)])).pods


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("    statusTemplate: 'phase: Running'\n", StageFields()),
        ("    finalizers: {add: [{value: a/b}], remove: [{value: c/d}]}\n", StageFields((), (), ("a/b", "c/d"))),
        ("    finalizers: {empty: true}\n", StageFields((), (), ("*",))),
        ("    delete: true\n", StageFields()),
        ("    patches: [{root: metadata, template: 'labels: {x/y: \"{{ Now }}\"}'}]\n", StageFields(("x/y",))),
        (TWO_LINES, StageFields((), ("one", "two"))),
        ("    patches: [{root: metadata, template: 'labels: {\"{{ .metadata.name }}\": x}'}]\n", StageFields(("*",))),
        ("    patches: [{root: metadata, template: '{{ .metadata }}'}]\n", StageFields(("*",), ("*",), ("*",))),
        (
            "    patches: [{type: json, template: '[{op: add, path: /metadata/labels/x~1y, value: z}]'}]\n",
            StageFields(("x/y",)),
        ),
        (
            "    patches: [{type: json, root: metadata, template: '[{op: add, path: /labels, value: {q: z}}]'}]\n",
            StageFields(("q",)),
        ),
        ("    patches: [{root: spec, template: 'nodeName: x'}]\n", StageFields()),
        ("    patches: [{subresource: status, root: metadata, template: 'labels: {a: b}'}]\n", StageFields()),
    ],
)
def test_keys_that_patches_name_and_all_where_one_is_computed(text, wanted):
    assert rights(text) == wanted


def test_stages_of_a_pod_life_need_its_finalizer_alone(request):
    shipped = request.config.rootpath / "experiments/stages"
    found = rights_of(load_stages([str(shipped / "pod-general.yaml")]))

    assert found.pods == StageFields((), (), ("kwok.x-k8s.io/fake",))
    assert found.nodes is None
    assert rights_of(load_stages([str(shipped / "pod-fast.yaml")])).pods == StageFields((), (), ("*",))
    heartbeat = rights_of(load_stages([str(shipped / "node-heartbeat.yaml")]))
    assert (heartbeat.pods, heartbeat.nodes) == (None, StageFields())


def test_restricted_labels_are_never_a_stages():
    fields = StageFields(("*",), ("kept",), ("a/b",))

    assert may_change(fields, "metadata.labels.x", None, "y")
    assert may_change(fields, "metadata.annotations.kept", None, "y")
    assert may_change(fields, "metadata.finalizers", None, ["a/b"])
    assert may_change(fields, "metadata.finalizers", ["c/d", "a/b"], ["c/d"])
    for path, before, after in (
        ("metadata.labels.node-restriction.kubernetes.io/trusted", None, "yes"),
        ("metadata.labels.x.node-restriction.kubernetes.io/trusted", None, "yes"),
        ("metadata.annotations.other", None, "y"),
        ("metadata.finalizers", ["c/d"], None),
        ("metadata.finalizers", None, ["a/b", "c/d"]),
        ("metadata.ownerReferences", None, []),
        ("spec.unschedulable", None, True),
    ):
        assert not may_change(fields, path, before, after)
