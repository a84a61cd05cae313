"""What an emulated DRA driver offers and answers: values in, values out (dra-core 1.1, 7.1)."""

import msgspec
import pytest

from kubelet.dra.calls import ClaimName
from kubelet.dra.emulated.definition import DriverDefinition, chunks, parse_drivers, read_definition
from kubelet.dra.emulated.driver import Command, EmulatedDriver, differs
from services.api.kinds.resourceclaim import ResourceClaim

NAME = "gpu.example.com"


def driver(guards=False, **definition):
    return EmulatedDriver(DriverDefinition(name=NAME, **{"devices": 2, **definition}), "n1", guards=guards)


def claim(uid, *devices, **more):
    results = [
        {"request": "r/big", "driver": NAME, "pool": "n1", "device": device, **more}
        if isinstance(device, str)
        else device
        for device in devices
    ]
    document = {"metadata": {"name": uid, "namespace": "default", "uid": uid},
                "status": {"allocation": {"devices": {"results": results}}}}  # fmt: skip
    return msgspec.convert(document, ResourceClaim)


def prepare(emulated, uid, *devices, **more):
    return emulated.prepare(ClaimName("default", uid, uid), claim(uid, *devices, **more))


def test_devices_are_offered_in_one_slice_of_the_node_with_its_name_as_the_pool():
    (spec,) = driver().slices().values()

    assert spec == {
        "driver": NAME, "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }  # fmt: skip


def test_a_pool_is_spread_over_as_many_slices_as_configured_and_counters_have_one_of_their_own():
    counters = [{"name": "memory", "counters": {"memory": {"value": "80Gi"}}}]
    specs = list(driver(devices=5, slices=2, shared_counters=counters).slices().values())

    assert [[d["name"] for d in s.get("devices", ())] for s in specs] == [
        ["gpu-0", "gpu-1", "gpu-2"], ["gpu-3", "gpu-4"], [],
    ]  # fmt: skip
    assert specs[2]["sharedCounters"] == counters
    assert {s["pool"]["resourceSliceCount"] for s in specs} == {3}


@pytest.mark.parametrize(
    ("count", "gated", "sizes"), [(300, False, [100, 100, 100]), (129, True, [43, 43, 43]), (0, False, [])]
)
def test_dra_core_1_1_no_slice_has_more_devices_than_it_may(count, gated, sizes):
    devices = [{"name": f"d{n}", **({"taints": [{}]} if gated and n == 5 else {})} for n in range(count)]

    assert [len(part) for part in chunks(devices, 0)] == sizes


def test_what_is_prepared_names_requests_without_their_alternative_and_a_cdi_id_for_each_device():
    (device,) = prepare(driver(), "c", "gpu-0").devices

    assert (device.pool, device.device, device.requests) == ("n1", "gpu-0", ("r",))
    assert device.cdi == (f"{NAME}/device=c-gpu-0",)


def test_a_claim_that_is_prepared_stays_so_whatever_is_asked_again_and_across_a_restart():
    first = driver()
    answer = prepare(first, "c", "gpu-0")
    again = driver()
    again.restore(first.checkpoint())

    assert answer == again.prepare(ClaimName("default", "c", "c"), "not read")


def test_devices_of_other_drivers_are_none_of_its_business():
    other = {"request": "r", "driver": "nic.example.com", "pool": "n1", "device": "nic-0"}

    assert prepare(driver(), "c", other).devices == ()


@pytest.mark.parametrize(
    ("stored", "error"),
    [
        (claim("other", "gpu-0"), "claim default/c got replaced: its uid is other, not c"),
        (claim("c", "gpu-9"), "there is no device n1/gpu-9"),
        (msgspec.convert({"metadata": {"name": "c", "uid": "c"}}, ResourceClaim), "claim default/c is not allocated"),
        ("failed to fetch ResourceClaim c", "failed to fetch ResourceClaim c"),
    ],
)
def test_what_cannot_be_prepared_is_an_error_of_the_claim(stored, error):
    result = driver().prepare(ClaimName("default", "c", "c"), stored)

    assert (result.error, result.devices) == (error, ())


@pytest.mark.parametrize(
    ("guards", "more", "error"),
    [
        (False, {}, ""),
        (True, {}, "device n1/gpu-0 is prepared for claim a"),
        (True, {"adminAccess": True}, ""),
        (True, {"shareID": "s2"}, ""),
    ],
)
def test_i7_a_driver_that_guards_refuses_a_device_that_another_claim_has(guards, more, error):
    emulated = driver(guards=guards)
    prepare(emulated, "a", "gpu-0")

    assert prepare(emulated, "b", "gpu-0", **more).error == error


def test_what_is_unprepared_is_free_for_others_and_unpreparing_twice_is_no_error():
    emulated = driver(guards=True)
    prepare(emulated, "a", "gpu-0")
    name = ClaimName("default", "a", "a")

    assert emulated.unprepare(name)[1] is not None
    assert emulated.unprepare(name) == (emulated.unprepare(name)[0], None)
    assert prepare(emulated, "b", "gpu-0").error == ""


def test_taints_and_lost_devices_are_offered_in_a_new_generation():
    emulated = driver()
    emulated.act(Command("taint", ("gpu-0", "broken=yes:NoExecute")))
    (tainted,) = emulated.slices().values()
    emulated.act(Command("untaint", ("gpu-0",)))
    emulated.act(Command("remove", ("gpu-1",)))
    (smaller,) = emulated.slices().values()

    assert tainted["devices"][0]["taints"] == [{"key": "broken", "effect": "NoExecute", "value": "yes"}]
    assert tainted["pool"]["generation"] == 2
    assert smaller["devices"] == [{"name": "gpu-0"}]
    assert smaller["pool"]["generation"] == 4


def test_a_slice_as_it_is_stored_does_not_differ_for_its_generation_or_the_time_of_a_taint():
    emulated = driver()
    emulated.act(Command("taint", ("gpu-0", "broken:NoSchedule")))
    wanted = emulated.slices()
    stored = msgspec.json.decode(msgspec.json.encode(wanted))
    for spec in stored.values():
        spec["pool"]["generation"] = 9
        spec["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"

    assert not differs(stored, wanted)
    assert differs({}, wanted)


def test_health_follows_commands():
    emulated = driver()
    emulated.act(Command("unhealthy", ("gpu-1",)))

    assert [each.health for each in emulated.health()] == ["Healthy", "Unhealthy"]


@pytest.mark.parametrize(
    ("act", "words", "error"),
    [
        ("dance", (), "no act 'dance'"),
        ("stop", ("gpu-0",), "stop is about no device, not gpu-0"),
        ("healthy", (), "healthy wants devices"),
        ("taint", ("gpu-0", "broken:Never"), "taint 'broken:Never': want KEY"),
        ("healthy", ("gpu-7",), "no device 'gpu-7'; there are: gpu-0, gpu-1"),
    ],
)
def test_an_act_that_there_is_not_is_named(act, words, error):
    with pytest.raises(ValueError, match=r".") as raised:
        driver().act(Command(act, words))

    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ({"name": "GPU"}, "name: 'GPU', want a DNS subdomain"),
        ({"name": NAME, "failCall": 2}, "failCall: 2, want 0 to 1"),
        ({"name": NAME, "prepare": "often:1"}, "prepare: 'often:1': no distribution 'often'"),
        ({"name": NAME, "prepare": -1}, "prepare: -1, want 0 or more"),
        ({"name": NAME, "devices": [{"name": "a"}, {"name": "a"}]}, "two devices are called 'a'"),
        ({"name": NAME, "devices": -3}, "devices: -3, want 0 to 100000"),
        ({"name": NAME, "devices": 10**12}, "devices: 1000000000000, want 0 to 100000"),
        ({"name": NAME, "devices": [{"name": "A_b"}]}, "devices[0].name: 'A_b', want a DNS label"),
        ({"name": NAME, "devices": [{"name": 3}]}, "devices[0].name: 3, want a DNS label"),
        ({"name": NAME, "devices": [{"name": "a", "atributes": {}}]}, "devices[0]: no field 'atributes'; there are: "),
        ({"name": NAME, "devices": 1, "dead": [[60, 10]]}, "dead[0]: from 60 to 10"),
        ({"name": NAME, "pools": [{"name": "p"}, {"name": "p"}]}, "pools: two are called 'p'"),
        (
            {"name": NAME, "devices": 1, "bindingConditions": ["x.io/a"]},
            "bindingConditions: [x.io/a] with bindingFailureConditions: [], want some of both or of neither",
        ),
        (
            {"name": NAME, "devices": 1, "failBinding": ["gpu-0"]},
            "failBinding: 'gpu-0' is no device with binding conditions; there are: none",
        ),
        ({"name": NAME, "color": "red"}, "Object contains unknown field `color`"),
    ],
)
def test_a_definition_that_cannot_be_names_its_field(shape, error):
    with pytest.raises(ValueError, match=r".") as raised:
        read_definition(shape)

    assert error in str(raised.value)


def test_the_words_of_scenarios_are_read():
    assert parse_drivers("gpu.example.com:4:prepare=2:slices=2:slice-delay=3+nic.example.com:1:dead=60-100") == [
        {"name": NAME, "devices": 4, "prepare": 2.0, "slices": 2, "sliceDelay": 3.0},
        {"name": "nic.example.com", "devices": 1, "dead": [[60.0, 100.0]]},
    ]


def test_the_words_of_scenarios_name_binding_conditions():
    text = "gpu.example.com:2:binding-condition=x.io/a:binding-failure-condition=x.io/f:binding-delay=12:fail-binding=gpu-1"
    (found,) = parse_drivers(text)

    assert found["bindingDelay"] == 12.0
    assert read_definition(found).devices_of(read_definition(found).all_pools("n1")[0]) == [
        {"name": name, "bindingConditions": ["x.io/a"], "bindingFailureConditions": ["x.io/f"]}
        for name in ("gpu-0", "gpu-1")
    ]


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("prepare", "prepare"), ("unprepare", "unprepare"), ("slices", "slices"), ("publish-delay", "publishDelay"),
        ("slice-delay", "sliceDelay"), ("fail-prepare", "failPrepare"), ("fail-unprepare", "failUnprepare"),
        ("fail-call", "failCall"), ("binding-delay", "bindingDelay"),
    ],
)  # fmt: skip
def test_each_option_of_the_short_form_is_a_field_of_the_long_one(option, field):
    (plain,), (found,) = parse_drivers("gpu.example.com:4"), parse_drivers(f"gpu.example.com:4:{option}=1")

    assert {field: 1} == {name: value for name, value in found.items() if plain.get(name) != value}
