"""What slices may publish: counters, taints, shares, conditions, and where each device is (dra-core 1.1)."""

from __future__ import annotations

import pytest

from apiserver_fake.registry.validation.formats import NAME_PART_TEXT
from services.api.kinds.resourceslice import SLICES

POOL = {"name": "p", "generation": 1, "resourceSliceCount": 1}
MEMORY = {"memory": {"value": "40Gi"}}


def slice_(*devices, **spec):
    own = {"driver": "gpu.example", "pool": POOL, "nodeName": "n1", **({"devices": [*devices]} if devices else {})}
    return {"metadata": {"name": "s"}, "spec": {**own, **spec}}


def causes_of(world, document):
    found, _ = world.try_create(SLICES, document)
    return [(cause.path.replace("spec.devices[0]", "@"), cause.message) for cause in found]


def device(**fields):
    return {"name": "d", **fields}


def policy(value="10Gi", **said):
    return device(allowMultipleAllocations=True, capacity={"bw": {"value": value, "requestPolicy": said}})


def test_a_slice_has_devices_or_counters(world):
    counters = [{"name": "card", "counters": MEMORY}]
    device_ = device(consumesCounters=[{"counterSet": "card", "counters": MEMORY}])

    assert causes_of(world, slice_(sharedCounters=counters)) == []
    assert causes_of(world, slice_(device_)) == []
    assert causes_of(world, slice_(device_, sharedCounters=counters)) == [
        ("spec", 'Invalid value: "": only one of `sharedCounters` or `devices` is allowed')
    ]


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (slice_(sharedCounters=[{"name": "a"}]), [("spec.sharedCounters[0].counters", "Required value")]),
        (slice_(sharedCounters=[{"name": "a", "counters": MEMORY}] * 2),
         [("spec.sharedCounters[1]", 'Duplicate value: "a"')]),
        (slice_(sharedCounters=[{"name": f"a{i}", "counters": MEMORY} for i in range(9)]),
         [("spec.sharedCounters", "Too many: 9: must have at most 8 items")]),
        (slice_(sharedCounters=[{"name": "a", "counters": {f"c{i}": {"value": "1"} for i in range(33)}}]),
         [("spec.sharedCounters[0].counters", "Too many: 33: must have at most 32 items")]),
        (slice_(device(consumesCounters=[{"counterSet": f"s{i}", "counters": MEMORY} for i in range(3)])),
         [("@.consumesCounters", "Too many: 3: must have at most 2 items")]),
        (slice_(device(nodeName="n1")),
         [("@", ("Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if "
           "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"))]),
        (slice_(device(), allNodes=True),
         [("spec", ('Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, '
           "`perDeviceNodeSelection` is required, but multiple fields are set"))]),
        (slice_(device(), nodeName=None, allNodes=False),
         [("spec.allNodes", "Invalid value: false: must be either unset or set to true"),
          ("spec", ("Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, "
           "`perDeviceNodeSelection` is required"))]),
        (slice_(device(bindingConditions=["a"])),
         [("@.bindingFailureConditions",
           "Invalid value: []: bindingFailureConditions are required to use bindingConditions")]),
        (slice_(device(bindingConditions=["a"], bindingFailureConditions=["a"])),
         [("@.bindingFailureConditions[0]",
           'Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions')]),
        (slice_(device(bindingConditions=[*"abcde"], bindingFailureConditions=["f"])),
         [("@.bindingConditions", "Too many: 5: must have at most 4 items")]),
        (slice_(device(attributes={"x": {"int": 1, "string": "a"}})),
         [("@.attributes[x]", 'Invalid value: {"int":1,"string":"a"}: exactly one value must be specified')]),
        (slice_(device(attributes={f"a{i}": {"int": i} for i in range(20)},
                       capacity={f"c{i}": {"value": "1"} for i in range(13)})),
         [("@", "Invalid value: 33: the total number of attributes and capacities must not exceed 32")]),
        (slice_(device(taints=[{"key": "k", "effect": "Never"}])),
         [("@.taints[0].effect",
           'Unsupported value: "Never": supported values: "NoExecute", "NoSchedule", "None"')]),
        (slice_(device(taints=[{"effect": "None"}])),
         [("@.taints[0].key", 'Invalid value: "": name part must be non-empty'),
          ("@.taints[0].key", f'Invalid value: "": {NAME_PART_TEXT}')]),
    ],
)  # fmt: skip
def test_a_wrong_slice_is_refused_in_upstreams_words(world, document, found):
    assert causes_of(world, document) == found


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"nodeName": "n1"}, None),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}, None),
        ({}, "Required value: "),
        ({"nodeName": "n1", "allNodes": True}, 'Invalid value: "{`nodeName`, `allNodes`}": '),
    ],
)
def test_with_places_of_their_own_devices_say_where_they_are(world, where, message):
    text = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
        "true in the ResourceSlice spec"
    )

    found = causes_of(world, slice_(device(**where), nodeName=None, perDeviceNodeSelection=True))

    assert found == ([] if message is None else [("@", message + text)])


def test_a_slice_whose_devices_say_more_has_64_at_most(world):
    plain = [{"name": f"d{i}"} for i in range(128)]
    tainted = [{**plain[0], "taints": [{"key": "k", "effect": "NoSchedule"}]}, *plain[1:65]]

    assert causes_of(world, slice_(*plain)) == []
    assert causes_of(world, slice_(*tainted)) == [("spec.devices", "Too many: 65: must have at most 64 items")]


RANGE = "@.capacity[bw].requestPolicy"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}, []),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}}, []),
        ({"default": "5Gi"}, []),
        ({"validValues": ["1Gi"]}, [(".default", "Required value: required when validValues is defined")]),
        ({"validRange": {"min": "1Gi"}}, [(".default", "Required value: required when validRange is defined")]),
        ({"default": "1Gi", "validValues": ["1Gi"], "validRange": {"min": "1Gi"}},
         [("", ('Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the '
           "same time"))]),
        ({"default": "1Gi", "validValues": ["2Gi", "1Gi"]},
         [(".validValues[1]", 'Invalid value: "1Gi": values must be sorted in ascending order')]),
        ({"default": "3Gi", "validValues": ["1Gi", "11Gi"]},
         [(".validValues[1]", 'Invalid value: "11Gi": option is larger than capacity value: 10Gi'),
          (".validValues", 'Invalid value: "3Gi": default value is not valid according to the requestPolicy')]),
        ({"default": "1", "validValues": [str(i) for i in range(1, 12)]},
         [(".validValues", "Too many: 11: must have at most 10 items")]),
        ({"default": "1Gi", "validRange": {"min": "2Gi"}},
         [(".validRange.min", 'Invalid value: "1Gi": default is less than min: 2Gi')]),
        ({"default": "1536Mi", "validRange": {"min": "1Gi", "step": "1Gi"}},
         [(".validRange.step", 'Invalid value: "1536Mi": value is not a multiple of a given step (1Gi) from (1Gi)')]),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "step": "0"}},
         [(".validRange.step", 'Invalid value: "0": must be greater than zero')]),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "step": "10Gi"}},
         [(".validRange.step", 'Invalid value: "10Gi": one step 11Gi is larger than capacity value: 10Gi')]),
        ({"default": "much", "validRange": {"min": "1Gi"}},
         [(".default", ("Invalid value: \"much\": quantities must match the regular expression "
           "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"))]),
    ],
)  # fmt: skip
def test_a_policy_of_requests_makes_sense(world, said, found):
    assert causes_of(world, slice_(policy(**said))) == [(RANGE + path, text) for path, text in found]


def test_only_what_is_shared_has_a_policy_of_requests(world):
    alone = policy(default="1Gi") | {"allowMultipleAllocations": False}

    assert causes_of(world, slice_(alone)) == [(RANGE, "Forbidden: allowMultipleAllocations must be true")]


def test_lists_are_attributes_with_their_gate(world):
    world.switch(DRAListTypeAttributes=True)

    assert causes_of(world, slice_(device(attributes={"x": {"strings": ["a", "b"]}}))) == []
    assert causes_of(world, slice_(device(attributes={"x": {"ints": []}}))) == [
        ("@.attributes[x].ints", "Invalid value: []: must not be empty if specified")
    ]
    assert causes_of(world, slice_(device(attributes={"x": {"versions": ["1.2.3", "1"]}}))) == [
        ("@.attributes[x].versions[1]", 'Invalid value: "1": must be a string compatible with semver.org spec 2.0.0')
    ]
    many = {"x": {"ints": [*range(49)]}}
    assert causes_of(world, slice_(device(attributes=many))) == [
        ("@", "Invalid value: 49: the total number of attribute values must not exceed 48")
    ]


def test_a_taint_is_there_since_its_driver_says_or_since_now(world):
    taints = [{"key": "a", "effect": "NoSchedule"},
              {"key": "b", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]  # fmt: skip

    stored = world.create(SLICES, slice_(device(taints=taints)))

    times = [taint["timeAdded"] for taint in stored["spec"]["devices"][0]["taints"]]
    assert times == ["2027-01-15T08:00:00Z", "2026-01-01T00:00:00Z"]
