"""Where a pod may go: tolerations, affinity, spread, gates; the texts are upstream's."""

from __future__ import annotations

import pytest

from tests.unit.apiserver_fake.registry.validation.pods.rules import NAME_PART, pod, wrong

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
WEIGHTED = f"spec.affinity.nodeAffinity.{PREFERRED}[0]"
PODS = f"spec.affinity.podAffinity.{REQUIRED}[0]"
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
SELECTOR = "not a valid selector operator"
NODE_NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("toleration", "found"),
    [
        ({"operator": "Exists"}, []),
        ({"key": "a", "value": "b", "effect": ""}, []),
        ({"key": "a b", "value": "c d", "effect": "zz"},
         [f'.key: Invalid value: "a b": {NAME_PART}', f'.operator: Invalid value: "c d": {VALUE}',
          '.effect: Unsupported value: "zz": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"']),
        ({"operator": "Equal"},
         [('.operator: Invalid value: "Equal": operator must be Exists when `key` is empty, '
          'which means "match all values and all keys"')]),
        ({"key": "a", "operator": "Exists", "value": "b", "tolerationSeconds": 3},
         ['.effect: Invalid value: "": effect must be \'NoExecute\' when `tolerationSeconds` is set',
          '.operator: Invalid value: "b": value must be empty when `operator` is \'Exists\'']),
        ({"key": "a", "operator": "In"},
         ['.operator: Unsupported value: "In": supported values: "Equal", "Exists"']),
    ],
)  # fmt: skip
def test_a_toleration_names_a_taint(world, toleration, found):
    assert wrong(world, pod(tolerations=[toleration])) == [f"spec.tolerations[0]{each}" for each in found]


def expression(**more):
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", **more}]}]}


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"nodeSelectorTerms": [{}]}, []),
        ({}, [": Required value: must have at least one node selector term"]),
        (expression(operator="In"),
         ["[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"]),
        (expression(operator="Exists", values=["b"]),
         [("[0].matchExpressions[0].values: Forbidden: "
          "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]),
        (expression(operator="Gt", values=["1", "2"]),
         [("[0].matchExpressions[0].values: Required value: "
          "must be specified single value when `operator` is 'Lt' or 'Gt'")]),
        (expression(operator="zz", key=""),
         [f'[0].matchExpressions[0].operator: Invalid value: "zz": {SELECTOR}',
          '[0].matchExpressions[0].key: Invalid value: "": name part must be non-empty',
          f'[0].matchExpressions[0].key: Invalid value: "": {NAME_PART}']),
        (expression(operator="In", values=["b", "c d"]),
         [f'[0].matchExpressions[0].values[1]: Invalid value: "c d": {VALUE}']),
        ({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["a"]},
                                                 {"key": "metadata.name", "operator": "Exists"},
                                                 {"key": "metadata.name", "operator": "In", "values": ["A", "b"]}]}]},
         ['[0].matchFields[0].key: Invalid value: "metadata.uid": not a valid field selector key',
          f'[0].matchFields[1].operator: Invalid value: "Exists": {SELECTOR}',
          ("[0].matchFields[2].values: Required value: "
          "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"),
          f'[0].matchFields[2].values[0]: Invalid value: "A": {NODE_NAME}']),
    ],
)  # fmt: skip
def test_a_node_selector_names_nodes(world, selector, found):
    said = wrong(world, pod(affinity={"nodeAffinity": {REQUIRED: selector}}))
    assert said == [f"{TERMS}{each}" for each in found]


def test_a_preferred_node_may_have_values_that_are_no_labels(world):
    term = {"weight": 101, "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["c d"]}]}}
    assert wrong(world, pod(affinity={"nodeAffinity": {PREFERRED: [term]}})) == [
        f"{WEIGHTED}.weight: Invalid value: 101: must be in the range 1-100"
    ]


def test_the_rules_of_a_term_that_names_pods(world):
    term = {"labelSelector": {"matchLabels": {"a b": "c"}}, "namespaces": ["A"], "topologyKey": ""}
    said = wrong(world, pod(affinity={"podAffinity": {REQUIRED: [term]}}))
    label = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )
    assert said == [
        f'{PODS}.labelSelector.matchLabels: Invalid value: "a b": {NAME_PART}',
        f'{PODS}.namespace: Invalid value: "A": {label}',
        f"{PODS}.topologyKey: Required value: can not be empty",
        f'{PODS}.topologyKey: Invalid value: "": name part must be non-empty',
        f'{PODS}.topologyKey: Invalid value: "": {NAME_PART}',
    ]


def test_a_weight_that_is_missing_is_none(world):
    term = {"labelSelector": {}, "topologyKey": "a"}
    assert wrong(world, pod(affinity={"podAntiAffinity": {PREFERRED: [{"podAffinityTerm": term}]}})) == [
        f"spec.affinity.podAntiAffinity.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-100"
    ]


def spread(**more):
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, **more}


@pytest.mark.parametrize(
    ("constraints", "found"),
    [
        ([spread(), spread(topologyKey="host"), spread(whenUnsatisfiable="ScheduleAnyway")], []),
        ([{}],
         ["[0].maxSkew: Invalid value: 0: must be greater than zero", "[0].topologyKey: Required value: can not be empty",
          '[0].whenUnsatisfiable: Unsupported value: "": supported values: "DoNotSchedule", "ScheduleAnyway"']),
        ([spread(), spread(), spread()],
         ['[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}"',
          '[1].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}"']),
        ([spread(minDomains=0, whenUnsatisfiable="ScheduleAnyway", nodeAffinityPolicy="zz", nodeTaintsPolicy="zz")],
         ["[0].minDomains: Invalid value: 0: must be greater than zero",
          ("[0].minDomains: Invalid value: 0: "
          "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"),
          '[0].nodeAffinityPolicy: Unsupported value: "zz": supported values: "Honor", "Ignore"',
          '[0].nodeTaintsPolicy: Unsupported value: "zz": supported values: "Honor", "Ignore"']),
    ],
)  # fmt: skip
def test_a_constraint_spreads_pods(world, constraints, found):
    said = wrong(world, pod(topologySpreadConstraints=constraints))
    assert said == [f"spec.topologySpreadConstraints{each}" for each in found]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"schedulingGates": [{"name": "a.b/c"}, {"name": "a b"}, {"name": "a.b/c"}]},
         [f'spec.schedulingGates[1]: Invalid value: "a b": {NAME_PART}',
          'spec.schedulingGates[2]: Duplicate value: "a.b/c"']),
        ({"schedulingGates": [{"name": "a"}], "nodeName": "n"},
         ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"]),
        ({"readinessGates": [{"conditionType": "a.b/c"}, {"conditionType": "a b"}]},
         [f'spec.readinessGates[1].conditionType: Invalid value: "a b": {NAME_PART}']),
        ({"nodeSelector": {"a b": "c"}}, [f'spec.nodeSelector: Invalid value: "a b": {NAME_PART}']),
        ({"nodeName": "A"}, [f'spec.nodeName: Invalid value: "A": {NODE_NAME}']),
    ],
)  # fmt: skip
def test_when_a_pod_may_go_anywhere(world, spec, found):
    assert wrong(world, pod(**spec)) == found
