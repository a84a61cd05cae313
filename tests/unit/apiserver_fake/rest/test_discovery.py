import msgspec

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest import discovery
from services.api.release import KUBERNETES
from services.api.resources import resources

CATALOGUE = whole_catalogue()


def plain(path):
    return msgspec.json.decode(discovery.document_at(CATALOGUE, path).body)


def test_every_resource_is_in_its_plain_list_with_its_subresources():
    for resource in resources().values():
        path = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
        entries = {entry["name"]: entry for entry in plain(path)["resources"]}

        assert entries[resource.plural]["kind"] == resource.kind
        assert {f"{resource.plural}/{s}" for s in resource.subresources} <= set(entries)


def test_drain_finds_the_eviction_subresource_under_its_own_group():
    entries = {entry["name"]: entry for entry in plain("api/v1")["resources"]}

    assert tuple(entries["pods/eviction"][k] for k in ("group", "version", "kind")) == ("policy", "v1", "Eviction")


def test_the_aggregated_form_lists_the_same_resources_as_the_plain_one():
    items = (
        discovery.aggregated_discovery(CATALOGUE, is_core=True)["items"]
        + discovery.aggregated_discovery(CATALOGUE, is_core=False)["items"]
    )

    aggregated = {
        (item["metadata"].get("name", ""), resource["resource"])
        for item in items
        for version in item["versions"]
        for resource in version["resources"]
    }
    assert {(r.group, r.plural) for r in resources().values()} <= aggregated
    assert items[0]["metadata"] == {}
    assert items[1]["metadata"]["name"] == "apps"


def test_the_older_aggregated_version_names_itself():
    body = msgspec.json.decode(discovery.document_at(CATALOGUE, "apis", "v2beta1").body)

    assert body["apiVersion"] == "apidiscovery.k8s.io/v2beta1"


def test_an_unserved_group_has_no_document():
    assert discovery.document_at(CATALOGUE, "apis/nosuch.example.com/v1") is None


def test_the_version_is_text_throughout():
    assert all(isinstance(value, str) for value in discovery.version().values())


def test_the_version_is_the_release_that_kubelets_name_with_an_honest_suffix():
    assert discovery.GIT_VERSION == discovery.version()["gitVersion"] == f"{KUBERNETES}+keplab"


def test_the_legacy_root_says_for_which_clients_its_addresses_are():
    """All of them: upstream `pkg/controlplane/instance.go`, `DefaultAddresses` with the client CIDR 0.0.0.0/0."""
    assert ["0.0.0.0/0"] == [each["clientCIDR"] for each in plain("api")["serverAddressByClientCIDRs"]]
