"""JSONPath as Kubernetes writes it."""

import pytest

from apiserver_fake.extensions.customresources.jsonpath import JSONPathError, find, names

DOCUMENT = {
    "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
    "spec": {"replicas": 3, "list": [1, 2, 3], "on": True},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Synced", "status": "False", "n": 2},
            {"type": "Ready", "status": "Unknown", "n": 3},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.replicas", [3]),
        ("{.spec.replicas}", [3]),
        ("$.spec.replicas", [3]),
        (r".metadata.labels.app\.kubernetes\.io/name", ["web"]),
        (".metadata.labels['app.kubernetes.io/name']", ["web"]),
        ('.metadata.labels["app.kubernetes.io/name"]', ["web"]),
        (".spec.list[0]", [1]),
        (".spec.list[-1]", [3]),
        (".spec.list[1:]", [2, 3]),
        (".spec.list[0:2]", [1, 2]),
        (".spec.list[0,2]", [1, 3]),
        (".spec.list[*]", [1, 2, 3]),
        (".spec.list[7]", []),
        (".spec.missing.deeper", []),
        (".spec.replicas.deeper", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True", "Unknown"]),
        ('.status.conditions[?(@.type == "Synced")].status', ["False"]),
        (".status.conditions[?(@.type=='Synced')].status", ["False"]),
        (".status.conditions[?(@.n>1)].n", [2, 3]),
        (".status.conditions[?(@.n<=1)].n", [1]),
        ('.status.conditions[?(@.type!="Ready")].n', [2]),
        (".status.conditions[?(@.n)].n", [1, 2, 3]),
        (".status.conditions[?(@.missing)].n", []),
        ('.status.conditions[?(@.n>"a")].n', []),
        ("..status", [DOCUMENT["status"], "True", "False", "Unknown"]),
        (".spec.*", [3, [1, 2, 3], True]),
        (".", [DOCUMENT]),
    ],
)
def test_a_path_leads_to_these_values(path, found):
    assert find(path, DOCUMENT) == found


@pytest.mark.parametrize("path", [".spec[", ".spec[x]", ".spec[?(@.a==b)]", "spec", ".a[?(b)]", "..", ".a..[0]]"])
def test_a_path_that_cannot_be_read_is_an_error_that_shows_it(path):
    with pytest.raises(JSONPathError) as error:
        find(path, DOCUMENT)

    assert path in str(error.value)


def test_a_path_without_brackets_is_a_list_of_names():
    assert names(".spec.replicas") == ("spec", "replicas")
    assert names(r".spec.a\.b") == ("spec", "a.b")


def test_a_path_that_leads_to_too_many_values_is_an_error():
    nested = [1]
    for _ in range(20):
        nested = [nested]
    with pytest.raises(JSONPathError, match="leads to more than 100000 values"):
        find("[0,0]" * 20, nested)


@pytest.mark.parametrize("path", ["[::0]", f"[{'9' * 5000}]", "[²]"])
def test_an_index_or_step_that_is_none_is_an_error_of_the_path(path):
    with pytest.raises(JSONPathError):
        find(path, [1])
