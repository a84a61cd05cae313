"""No field of the served schema is accepted and ignored without a word."""

import importlib.util
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "_sphinx" / "fields.py"


@pytest.fixture(scope="module")
def fields():
    spec = importlib.util.spec_from_file_location("keplab_fields", PAGE)
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    yield found
    del sys.modules[spec.name]


def test_each_served_field_is_read_dropped_by_its_gate_or_named_as_without_effect(fields):
    assert fields.unread() == []


def test_a_field_that_no_line_names_and_no_code_has_is_found(fields, monkeypatch):
    idle = fields.Field("core.v1.PodSpec", "setHostnameAsFQDN")
    fewer = tuple(each._replace(fields=tuple(f for f in each.fields if f != idle)) for each in fields.reviewed())
    monkeypatch.setattr(fields, "reviewed", lambda: fewer)
    fields.without_effect.cache_clear()

    assert fields.unread() == [idle]
    fields.without_effect.cache_clear()


def test_a_line_that_names_a_field_which_is_not_served_is_refused(fields, monkeypatch, tmp_path):
    wrong = tmp_path / "fields.txt"
    wrong.write_text("[Nobody.]\ncore.v1.PodSpec: hostPID hostPIP\n")
    monkeypatch.setattr(fields, "REVIEWED", wrong)
    fields.reviewed.cache_clear()

    with pytest.raises(ValueError, match=r"fields.txt:2: core.v1.PodSpec has no hostPIP"):
        fields.reviewed()
    fields.reviewed.cache_clear()


def test_no_line_names_a_field_that_is_always_dropped_or_another_line_has(fields):
    named = [field for each in fields.reviewed() for field in each.fields]

    assert len(named) == len(set(named))
    assert [] == [field for field in named if fields.gated().get(field)]


def test_a_gate_that_is_off_in_every_release_takes_a_topology_constraint(fields):
    gated = fields.gated()

    assert gated[fields.Field("scheduling.v1beta1.PodGroupSpec", "schedulingConstraints")] is True
    assert gated[fields.Field("resource.v1.Device", "taints")] is False


def test_types_that_only_idle_fields_lead_to_are_idle(fields):
    idle = fields.without_effect()

    assert fields.Field("networking.v1.IngressRule", "host") in idle
    assert fields.Field("core.v1.SecretReference", "name") in idle
    assert fields.Field("core.v1.Container", "image") not in idle


def test_the_page_names_each_idle_field_and_counts_every_field_once(fields):
    counted = fields.counted()

    assert counted[fields.SERVED] == sum(number for state, number in counted.items() if state != fields.SERVED)
    assert "* `core.v1.AppArmorProfile`: `localhostProfile`" in fields.table()
