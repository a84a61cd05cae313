"""What an event has to say in events.k8s.io/v1, and what core/v1 lets pass."""

import msgspec
import pytest

from apiserver_fake.rest.versions import versioned_api
from lab.scenarios.simulation import simloop
from services.api.wire import Request
from tests.component.apiserver_fake.custom_resources import Machine

TIME = "2026-01-01T00:00:00.000000Z"
NEW = {
    "metadata": {"name": "e"}, "eventTime": TIME, "type": "Normal", "reason": "R", "action": "A", "note": "n",
    "reportingController": "example.com/c", "reportingInstance": "i",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
}  # fmt: skip
SERIES = {"count": 2, "lastObservedTime": TIME}


def answers(*calls):
    """Return the code and the causes of each call: verb, group, body."""

    async def run():
        async with Machine().cluster() as cluster:
            found = []
            for verb, group, body in calls:
                served = cluster.server.catalogue.served_versions[group, "v1"]["events"]
                name = "" if verb == "create" else "e"
                request = Request(
                    verb=verb, resource="events", namespace="default", name=name, body=msgspec.json.encode(body),
                    patch_type="merge" if verb == "patch" else "", field_validation="Strict",
                )  # fmt: skip
                response = await versioned_api(cluster.api, served).call(request)
                causes = [] if response.is_ok else response.error().details["causes"]
                found.append((response.code, [f"{each['field']}: {each['message']}" for each in causes]))
            return found

    return simloop.run(run())


V1, CORE = "events.k8s.io", ""


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        ({}, []),
        ({"series": SERIES}, []),
        ({"type": "Odd"}, ['type: Invalid value: "": has invalid value: Odd']),
        ({"type": None}, ['type: Invalid value: "": has invalid value: ']),
        ({"reportingInstance": ""}, ["reportingInstance: Required value"]),
        ({"reportingInstance": "i" * 129}, ['reportingInstance: Invalid value: "": can have at most 128 characters']),
        ({"action": ""}, ["action: Required value"]),
        ({"reason": None}, ["reason: Required value"]),
        ({"note": "n" * 1025}, ['message: Invalid value: "": can have at most 1024 characters']),
        ({"series": {"count": 1}}, ['series.count: Invalid value: "": should be at least 2', "series.lastObservedTime: Required value"]),
        ({"deprecatedCount": 1}, ['count: Invalid value: "": needs to be unset']),
        ({"deprecatedFirstTimestamp": "2026-01-01T00:00:00Z"}, ['firstTimestamp: Invalid value: "": needs to be unset']),
        ({"deprecatedLastTimestamp": "2026-01-01T00:00:00Z"}, ['lastTimestamp: Invalid value: "": needs to be unset']),
        ({"deprecatedSource": {"component": "k"}}, ['source: Invalid value: "": needs to be unset']),
        ({"eventTime": None}, ["eventTime: Required value"]),
    ],
)  # fmt: skip
def test_a_new_event_says_when_who_and_why_and_nothing_of_the_older_fields(change, causes):
    assert answers(("create", V1, {**NEW, **change})) == [(422 if causes else 201, causes)]


def test_an_event_without_a_controller_is_refused_in_the_words_of_its_version():
    older = {
        "metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "eventTime": TIME, "action": "A",
        "reason": "R", "reportingInstance": "i",
    }  # fmt: skip
    [newer_refused, refused] = answers(("create", V1, {**NEW, "reportingController": ""}), ("create", CORE, older))

    assert [newer_refused[1][0], refused[1][0]] == [
        "reportingController: Required value",
        "reportingComponent: Required value",
    ]


@pytest.mark.parametrize(
    ("patch", "cause"),
    [
        ({"note": "changed"}, 'message: Invalid value: "changed": field is immutable'),
        ({"reason": "S"}, 'reason: Invalid value: "S": field is immutable'),
        ({"type": "Warning"}, 'type: Invalid value: "Warning": field is immutable'),
        ({"action": "B"}, 'action: Invalid value: "B": field is immutable'),
        ({"deprecatedCount": 3}, "count: Invalid value: 3: field is immutable"),
        ({"reportingController": "d"}, 'reportingController: Invalid value: "d": field is immutable'),
        ({"reportingInstance": "j"}, 'reportingInstance: Invalid value: "j": field is immutable'),
        ({"deprecatedSource": {"host": "h"}}, 'source: Invalid value: {"Component":"","Host":"h"}: field is immutable'),
        ({"series": {"count": 1, "lastObservedTime": TIME}}, 'series.count: Invalid value: "": should be at least 2'),
        ({"regarding": {"name": "q"}},
         ('involvedObject: Invalid value: {"Kind":"Pod","Namespace":"default","Name":"q","UID":"","APIVersion":"",'
          '"ResourceVersion":"","FieldPath":""}: field is immutable')),
    ],
)  # fmt: skip
def test_of_an_event_only_its_series_changes(patch, cause):
    made, refused, counted, changed = answers(
        ("create", V1, NEW), ("patch", V1, patch), ("patch", V1, {"series": SERIES}), ("patch", CORE, {"message": "c"})
    )

    assert (made, refused, counted, changed) == ((201, []), (422, [cause]), (200, []), (200, []))


def test_core_events_need_no_time_and_no_type():
    older = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "type": "Odd", "count": 1}
    elsewhere = {**older, "involvedObject": {"namespace": "other"}}

    assert answers(("create", CORE, older), ("create", CORE, elsewhere)) == [
        (201, []),
        (422, ['involvedObject.namespace: Invalid value: "other": does not match event.namespace']),
    ]
