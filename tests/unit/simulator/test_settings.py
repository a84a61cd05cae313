"""kube-scheduler-simulator's own configuration: what is understood, and what is refused by field and value."""

import pytest

from lab.simulator.schedulerconfig import of_older_release
from lab.simulator.settings import Settings, SettingsError, read_settings
from lab.simulator.watching import line_of, versions

HEAD = "apiVersion: kube-scheduler-simulator-config/v1alpha1\nkind: SimulatorConfiguration\n"


def read(tmp_path, text, head=HEAD):
    file = tmp_path / "settings.yaml"
    file.write_text(head + text)
    return read_settings(file)


def test_the_simulators_own_file_is_understood(tmp_path):
    text = """\
port: 1212
etcdURL: "http://127.0.0.1:2379"
corsAllowedOriginList: ["http://localhost:3000/"]
kubeConfig: "/kubeconfig.yaml"
kubeApiServerUrl: ""
kubeSchedulerConfigPath: "scheduler.yaml"
externalImportEnabled: true
resourceImportLabelSelector:
  matchLabels: {team: a}
  matchExpressions: [{key: tier, operator: NotIn, values: [x, y]}, {key: old, operator: DoesNotExist}]
resourceSyncEnabled: false
replayEnabled: false
externalSchedulerEnabled: true
"""

    assert read(tmp_path, text) == Settings(
        port=1212,
        etcd_url="http://127.0.0.1:2379",
        cors_origins=("http://localhost:3000",),
        scheduler_config="scheduler.yaml",
        has_own_scheduler=False,
        import_kubeconfig="/kubeconfig.yaml",
        import_selector="team=a,tier notin (x,y),!old",
    )
    assert read(tmp_path, "") == Settings()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "externalImportEnabled: true\nresourceSyncEnabled: true\nkubeConfig: x",
            "externalImportEnabled and resourceSyncEnabled cannot be used simultaneously",
        ),
        (
            "replayEnabled: true\nresourceSyncEnabled: true\nkubeConfig: x",
            "resourceSyncEnabled and replayEnabled cannot be used simultaneously",
        ),
        ("resourceSyncEnabled: true", "resourceSyncEnabled needs kubeConfig"),
        ("replayEnabled: true", "replayEnabled needs recordFilePath"),
        ("port: 99999", "port 99999: want a port up to 65535"),
        ("port: true", "port True: want a port"),
        ("corsAllowedOriginList: [here]", "corsAllowedOriginList 'here': want an origin such as http://localhost:3000"),
        ("prot: 1", "prot: no field of a SimulatorConfiguration"),
        ("kubeConfig: 3", "kubeConfig 3: want a text"),
        ("replayEnabled: often", "replayEnabled 'often': want true or false"),
        ("resourceImportLabelSelector: a=b", "resourceImportLabelSelector 'a=b': want matchLabels or matchExpressions"),
        ("resourceImportLabelSelector: {matchLabels: {a: 'b c'}}", "invalid label value 'b c'"),
        (
            "resourceImportLabelSelector: {matchLabels: [a]}",
            "resourceImportLabelSelector.matchLabels: Expected `object`",
        ),
        ("resourceImportLabelSelector: {matchLabels: {a: 'x,b'}}", "invalid label value 'x,b'"),
        ("resourceImportLabelSelector: {matchExpressions: [a]}", "resourceImportLabelSelector.matchExpressions[0]: "),
        (
            "resourceImportLabelSelector: {matchExpressions: [{key: a, operator: In, values: [1]}]}",
            "resourceImportLabelSelector.matchExpressions[0].values[0]: Expected `str`, got `int`",
        ),
        (
            "resourceImportLabelSelector: {matchExpressions: [{key: a, operator: In, values: ['x,y']}]}",
            "invalid label value 'x,y'",
        ),
        (
            "resourceImportLabelSelector: {matchExpressions: [{key: a, operator: In}]}",
            "values [] of 'a' In: want at least one",
        ),
        (
            "resourceImportLabelSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
            "values ['b'] of 'a' Exists: want none",
        ),
        (
            "resourceImportLabelSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}",
            "operator 'in' of 'a': want In, NotIn, Exists, DoesNotExist",
        ),
        ("corsAllowedOriginList: ['http://[::1']", "corsAllowedOriginList 'http://[::1': want an origin"),
        ("port: [", "line"),
    ],
)
def test_what_cannot_be_used_is_refused_by_field_and_value(tmp_path, text, wanted):
    with pytest.raises(SettingsError, match=r".") as refused:
        read(tmp_path, text)

    assert wanted in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_of_another_kind_or_none_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="kind 'Config': want SimulatorConfiguration"):
        read(tmp_path, "kind: Config", HEAD.splitlines()[0] + "\n")
    with pytest.raises(SettingsError, match="No such file"):
        read_settings(tmp_path / "absent.yaml")


@pytest.mark.parametrize("name", ["podsLastResourceVersion", "podslastResourceVersion"])
def test_both_spellings_of_a_version_are_read_and_namespaces_in_either_number(name):
    found = versions({name: "7", "namespaceLastResourceVersion": "9"})

    assert (found["pods"], found["namespaces"], found["nodes"]) == ("7", "9", "")
    assert versions({"namespaceslastResourceVersion": "3"})["namespaces"] == "3"


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "²", "٣", "18446744073709551616", "9" * 5000])
def test_what_is_no_version_of_64_bits_is_refused(text):
    with pytest.raises(ValueError, match=f"pvsLastResourceVersion: want a version, not '{text}'"):
        versions({"pvsLastResourceVersion": text})


def test_a_line_has_the_plural_the_event_and_the_object_without_its_kind():
    body = b'{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"s"}}'

    assert line_of("storageclasses.storage.k8s.io", "ADDED", body) == (
        b'{"Kind":"storageclasses","EventType":"ADDED","Obj":{"metadata":{"name":"s"}}}\n'
    )
    assert line_of("pods", "ERROR", b'{"kind":"Status","code":410}') == (
        b'{"Kind":"pods","EventType":"ERROR","Obj":{"kind":"Status","code":410}}\n'
    )


def test_plugins_of_older_releases_are_left_out_of_an_import():
    old = {"profiles": [{"plugins": {"filter": {"enabled": [{"name": "EBSLimits"}, {"name": "NodeName"}]}}}]}

    assert of_older_release(old) == (
        {"profiles": [{"plugins": {"filter": {"enabled": [{"name": "NodeName"}]}}}]},
        ["EBSLimits"],
    )
