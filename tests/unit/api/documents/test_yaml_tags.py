"""Texts of YAML that are not what their tags say: every reader refuses them in words of its own kind."""

import pytest

from apiserver_fake.rest.media_types import json_from_yaml
from lab.exchange.rest.kubeconfig import read_access
from lab.exchange.stream import Refused
from lab.ui.objects import read_documents
from scheduler.configuration.parser import ConfigurationError, read
from services.api.documents import yaml_text
from services.api.errors import BadRequest
from services.kwok.stages.document import StageError, read_stage

TEXTS = ("a: !!bool x", "a: !!timestamp x", "a: !!timestamp 2026-02-30", "a: !!int x", "!!float y: 1")


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_that_is_not_what_its_tag_says_is_a_mistake_of_the_text(text):
    for reader in (yaml_text.load, lambda t: list(yaml_text.load_all(t)), lambda t: list(yaml_text.load_located(t))):
        with pytest.raises(ValueError, match="a value is not what its tag says"):
            reader(text)
    with pytest.raises(ConfigurationError, match="not YAML: "):
        read(text)
    with pytest.raises(BadRequest, match="that is neither JSON nor YAML"):
        read_documents(text.encode())


@pytest.mark.parametrize("body", [b"a: !!bool x", b"!!bool x: y", b"a: !!int x"])
def test_such_a_body_is_a_bad_request(body):
    with pytest.raises(BadRequest, match=r"^yaml: "):
        json_from_yaml(body)


def test_such_a_kubeconfig_is_refused_by_its_name(tmp_path):
    path = tmp_path / "config"
    path.write_text("clusters: !!bool x")

    with pytest.raises(Refused, match="config: no kubeconfig: a value is not what its tag says"):
        read_access(path)


@pytest.mark.parametrize(("message", "says"), [(5, "Expected `str`, got `int`"), (["x"], "Expected `str`, got `list`")])
def test_a_template_that_is_no_text_is_named_by_its_path(message, says):
    with pytest.raises(StageError, match=rf"stage s: spec.next.event.message: {says}"):
        read_stage(a_stage(message))


def test_a_template_that_is_null_is_an_empty_one():
    assert read_stage(a_stage(None)) is not None


def a_stage(message):
    selector = {"matchExpressions": [{"key": ".metadata.name", "operator": "Exists"}]}
    event = {"type": "Normal", "reason": "R", "message": message}
    spec = {"resourceRef": {"apiGroup": "v1", "kind": "Pod"}, "selector": selector, "next": {"event": event}}
    return {"metadata": {"name": "s"}, "spec": spec}
