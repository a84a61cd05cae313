import msgspec
import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest import discovery, openapi
from services.api.resources import resources

CATALOGUE = whole_catalogue()


def document(group, version):
    return msgspec.json.decode(openapi.group_version_answer(CATALOGUE, group, version).body)


@pytest.mark.parametrize("resource", resources().values(), ids=lambda r: r.name)
def test_patch_of_every_kind_takes_field_validation(resource):
    patches = [
        path["patch"]
        for path in document(resource.group, resource.version)["paths"].values()
        if path.get("patch", {}).get("x-kubernetes-group-version-kind", {}).get("kind") == resource.kind
    ]

    assert patches
    assert all("fieldValidation" in [p["name"] for p in patch["parameters"]] for patch in patches)


@pytest.mark.parametrize("resource", resources().values(), ids=lambda r: r.name)
def test_every_kind_has_a_schema_that_says_its_kind(resource):
    schemas = document(resource.group, resource.version)["components"]["schemas"]
    wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}

    assert any(wanted in schema.get("x-kubernetes-group-version-kind", []) for schema in schemas.values())


def test_every_reference_leads_to_a_schema_in_the_same_document():
    for group, versions in discovery.groups(CATALOGUE).items():
        for version in versions:
            found = document(group, version)
            names = set(found["components"]["schemas"])
            text = openapi.group_version_answer(CATALOGUE, group, version).body.decode()
            references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

            assert references <= names


def test_the_index_names_a_url_for_each_group_version_that_changes_with_it():
    paths = msgspec.json.decode(openapi.index(CATALOGUE).body)["paths"]
    digest = openapi.group_version_answer(CATALOGUE, "apps", "v1").etag.strip('"')

    assert paths["apis/apps/v1"]["serverRelativeURL"] == f"/openapi/v3/apis/apps/v1?hash={digest}"
    assert "api/v1" in paths


def test_containers_merge_by_name_for_client_side_apply():
    schemas = document("", "v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]

    assert (containers["x-kubernetes-patch-merge-key"], containers["x-kubernetes-patch-strategy"]) == ("name", "merge")


def test_defaults_enums_and_bounds_in_the_schemas_are_those_that_writes_are_checked_by():
    schemas = openapi.document(CATALOGUE, "", "v1")["components"]["schemas"]
    pod, port = schemas["io.k8s.api.core.v1.PodSpec"], schemas["io.k8s.api.core.v1.ContainerPort"]

    assert pod["properties"]["restartPolicy"]["enum"] == ["Always", "Never", "OnFailure"]
    assert pod["properties"]["restartPolicy"]["default"] == "Always"
    assert (port["properties"]["containerPort"]["minimum"], port["properties"]["containerPort"]["maximum"]) == (
        1,
        65535,
    )
    workloads = openapi.document(CATALOGUE, "apps", "v1")["components"]["schemas"]
    assert workloads["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["replicas"]["default"] == 1


def test_what_is_required_is_what_upstreams_types_require():
    core = openapi.document(CATALOGUE, "", "v1")["components"]["schemas"]
    workloads = openapi.document(CATALOGUE, "apps", "v1")["components"]["schemas"]

    assert core["io.k8s.api.core.v1.PodSpec"]["required"] == ["containers"]
    # An image may be missing from a template that something else completes; writes of pods are refused without.
    assert core["io.k8s.api.core.v1.Container"]["required"] == ["name"]
    assert workloads["io.k8s.api.apps.v1.DeploymentSpec"]["required"] == ["selector", "template"]
    assert "required" not in workloads["io.k8s.api.apps.v1.Deployment"]


def test_a_list_requires_its_items_and_refers_to_its_kind():
    schema = document("apps", "v1")["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentList"]

    assert (schema["type"], schema["required"]) == ("object", ["items"])
    assert list(schema["properties"]) == ["apiVersion", "kind", "metadata", "items"]
    assert schema["properties"]["items"]["items"] == {"$ref": "#/components/schemas/io.k8s.api.apps.v1.Deployment"}
    assert schema["properties"]["metadata"]["$ref"].endswith(".meta.v1.ListMeta")
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "apps", "version": "v1", "kind": "DeploymentList"}]


@pytest.mark.parametrize("kind", discovery.CREATED_ONLY, ids=lambda r: r.kind)
def test_what_can_only_be_created_is_described_too(kind):
    found = document(kind.group, kind.version)
    path = next(each for name, each in found["paths"].items() if name.endswith(f"/{kind.plural}"))

    assert list(path) == ["post", "parameters"]
    assert path["post"]["x-kubernetes-group-version-kind"]["kind"] == kind.kind
    group = (kind.group or "core").split(".")[0]
    assert found["components"]["schemas"][f"io.k8s.api.{group}.v1.{kind.kind}"]["properties"]
