"""Which kinds `keplab scale` makes objects of."""

import asyncio

import pytest

from lab.cli.commands.scale import _served_resource

LAMPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "lamps.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
    "status": {
        "acceptedNames": {"kind": "Lamp", "plural": "lamps", "singular": "lamp", "listKind": "LampList"},
        "conditions": [{"type": "Established", "status": "True"}],
    },
}


class Definitions:
    async def list(self, resource):
        assert resource == "customresourcedefinitions.apiextensions.k8s.io"
        return [{**LAMPS, "metadata": {"name": "new"}, "status": {}}, LAMPS], 1


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        ("apps/v1", "Deployment", "deployments.apps"),
        ("example.com/v1", "Lamp", "lamps.example.com"),
        ("example.com/v2", "Lamp", None),
        ("example.com/v1", "Torch", None),
    ],
)
def test_a_kind_is_served_that_is_built_in_or_that_a_definition_defines(api_version, kind, name):
    found = asyncio.run(_served_resource(Definitions(), api_version, kind))

    assert (found.name if found is not None else None) == name
