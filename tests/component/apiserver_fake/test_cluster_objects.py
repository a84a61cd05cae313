"""What every cluster has is there from the first start, once, and is valid by the server's own rules."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, suppress

import msgspec

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.registry.controlplane.cluster_objects import standing_objects
from apiserver_fake.wiring import build
from services.api.identity import ADMIN
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request
from services.runtime.real import MemoryDisk, NoTransport, RealClock
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import MemorySpans, Tracer
from tests.component.apiserver_fake.custom_resources import a_definition, a_version


@asynccontextmanager
async def a_server(folder, **settings):
    clock = RealClock()
    rng = random.Random(5)
    tracer = Tracer("apiserver", clock=clock, random=rng, sinks=(MemorySpans(),))
    seams = Seams(
        component="apiserver",
        clock=clock,
        random=rng,
        disk=MemoryDisk(),
        transport=NoTransport(),
        events=NullEventLog(),
        tracer=tracer,
        switches=Switches(),
    )
    config = ApiServerConfig(name="apiserver", data_dir=str(folder), grpc_port=None, rest_port=0, **settings)
    component = build(config, seams)
    running = asyncio.create_task(component.run())
    while not component.is_ready:
        await asyncio.sleep(0)
        if running.done():
            running.result()
    try:
        yield component
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def names(component, resource):
    response = await component.server.api_for(ADMIN).call(Request(verb="list", resource=resource))
    return {item["metadata"]["name"]: item for item in msgspec.json.decode(response.unwrap().body)["items"]}


def test_a_cluster_has_its_objects_once_and_its_service_leads_to_where_it_listens(tmp_path):
    async def scenario():
        for _ in range(2):
            async with a_server(tmp_path, cluster_objects=True) as component:
                port = component.rest_port
                service, endpoints = [await names(component, each) for each in ("services", "endpoints")]
                schemas = await names(component, "flowschemas.flowcontrol.apiserver.k8s.io")
                classes = await names(component, "storageclasses.storage.k8s.io")
                slices = await names(component, "endpointslices.discovery.k8s.io")
            assert [*service] == ["kubernetes"]
            assert service["kubernetes"]["spec"]["clusterIP"] == "10.96.0.1"
            assert service["kubernetes"]["spec"]["ports"][0]["targetPort"] == port
            assert endpoints["kubernetes"]["subsets"][0]["ports"][0]["port"] == port
            assert slices["kubernetes"]["ports"][0]["port"] == port
            assert classes["standard"]["volumeBindingMode"] == "WaitForFirstConsumer"
            assert len(schemas) == 13
            assert {each["status"]["conditions"][0]["status"] for each in schemas.values()} == {"False"}

    asyncio.run(scenario())


def test_a_server_without_the_setting_has_none_of_them(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as component:
            assert await names(component, "services") == {}
            assert await names(component, "flowschemas.flowcontrol.apiserver.k8s.io") == {}

    asyncio.run(scenario())


def test_each_flow_schema_leads_to_a_level_that_there_is():
    flows = [each for each in standing_objects() if each["kind"] == "FlowSchema"]
    levels = {each["metadata"]["name"] for each in standing_objects() if each["kind"] == "PriorityLevelConfiguration"}
    assert {each["spec"]["priorityLevelConfiguration"]["name"] for each in flows} == levels


API_SERVICES = "apiservices.apiregistration.k8s.io"
MANAGED = "kube-aggregator.kubernetes.io/automanaged"


NAME = "v1.stable.example.com"


async def until(component, name, wanted):
    """Return the APIService of that name once `wanted` says so of it (None: it is gone)."""
    for _ in range(2000):
        found = (await names(component, API_SERVICES)).get(name)
        if wanted(found):
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(f"{name} is {found}")


async def call(component, verb, resource, document=None, **place):
    body = b"" if document is None else msgspec.json.encode(document)
    return await component.server.api_for(ADMIN).call(Request(verb=verb, resource=resource, body=body, **place))


def said(service):
    (condition,) = service["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


def an_api_service(group, service, version="v1beta1"):
    spec = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
    spec |= {"service": service, "insecureSkipTLSVerify": True} if service else {}
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"}, "spec": spec}  # fmt: skip


def test_each_built_in_group_version_has_a_local_api_service(tmp_path):
    async def scenario():
        async with a_server(tmp_path, cluster_objects=True) as component:
            found = await names(component, API_SERVICES)
            assert said(found["v1.apps"]) == ("True", "Local", "Local APIServices are always available")
            assert found["v1.apps"]["metadata"]["labels"] == {MANAGED: "onstart"}
            assert found["v1.apps"]["spec"] == {
                "group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15}  # fmt: skip
            assert found["v1."]["spec"]["groupPriorityMinimum"] == 18000
            assert {"v1.authentication.k8s.io", "v2.autoscaling", "v1beta1.metrics.k8s.io"} <= set(found)
            assert "v1.apiregistration.k8s.io" not in found
            # Its owner's until the next start, which puts it right.
            patch = {"spec": {"versionPriority": 7}}
            await call(component, "patch", API_SERVICES, patch, name="v1.apps", patch_type="merge")
            (await call(component, "delete", API_SERVICES, name="v1.batch")).unwrap()
            await asyncio.sleep(0.05)
            found = await names(component, API_SERVICES)
            assert (found["v1.apps"]["spec"]["versionPriority"], "v1.batch" in found) == (7, False)
        async with a_server(tmp_path, cluster_objects=True) as component:
            found = await names(component, API_SERVICES)
            assert (found["v1.apps"]["spec"]["versionPriority"], "v1.batch" in found) == (15, True)
        async with a_server(tmp_path / "other") as component:
            assert await names(component, API_SERVICES) == {}

    (tmp_path / "other").mkdir()
    asyncio.run(scenario())


def test_a_definitions_group_versions_have_api_services_as_long_as_it_serves_them(tmp_path):
    async def scenario():
        async with a_server(tmp_path, cluster_objects=True) as component:
            kind = "customresourcedefinitions.apiextensions.k8s.io"
            (await call(component, "create", kind, a_definition(a_version()))).unwrap()
            made = await until(component, NAME, lambda found: found is not None)
            assert made["metadata"]["labels"] == {MANAGED: "true"}
            assert (made["spec"]["groupPriorityMinimum"], made["spec"]["versionPriority"]) == (1000, 100)
            (await call(component, "delete", API_SERVICES, name=NAME)).unwrap()
            again = await until(component, NAME, lambda found: found is not None)
            assert again["metadata"]["uid"] != made["metadata"]["uid"]
            (await call(component, "delete", kind, name=a_definition(a_version())["metadata"]["name"])).unwrap()
            await until(component, NAME, lambda found: found is None)

    asyncio.run(scenario())


def test_an_api_service_of_another_server_says_why_it_is_not_available(tmp_path):
    reference = {"namespace": "default", "name": "visibility"}

    async def scenario():
        async with a_server(tmp_path, cluster_objects=True) as component:
            name = "v1beta1.visibility.example.com"
            sent = an_api_service("visibility.example.com", reference)
            made = msgspec.json.decode((await call(component, "create", API_SERVICES, sent)).unwrap().body)
            assert (made["spec"]["service"]["port"], made["status"]) == (443, {})

            async def reason(wanted):
                found = await until(
                    component, name, lambda each: each["status"] and said(each)[1] == wanted
                )  # fmt: skip
                return said(found)[0], said(found)[2]

            assert await reason("ServiceNotFound") == ("False", 'service/visibility in "default" is not present')
            meta = {"namespace": "default", "name": "visibility"}
            service = {"apiVersion": "v1", "kind": "Service", "metadata": meta,
                       "spec": {"clusterIP": "10.96.0.77", "ports": [{"name": "https", "port": 80}]}}  # fmt: skip
            (await call(component, "create", "services", service, namespace="default")).unwrap()
            text = 'service/visibility in "default" is not listening on port 443'
            assert await reason("ServicePortError") == ("False", text)
            patch = {"spec": {"ports": [{"name": "https", "port": 443}]}}
            where = {"namespace": "default", "name": "visibility", "patch_type": "merge"}
            (await call(component, "patch", "services", patch, **where)).unwrap()
            text = 'cannot find endpointslices for service/visibility in "default"'
            assert await reason("EndpointsNotFound") == ("False", text)
            slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                      "metadata": {**meta, "labels": {"kubernetes.io/service-name": "visibility"}},
                      "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": False}}],
                      "ports": [{"name": "https", "port": 8443}]}  # fmt: skip
            kind = "endpointslices.discovery.k8s.io"
            (await call(component, "create", kind, slices, namespace="default")).unwrap()
            text = 'endpointslices for service/visibility in "default" have no addresses with port name "https"'
            assert await reason("MissingEndpoints") == ("False", text)
            patch = {"endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}]}
            (await call(component, "patch", kind, patch, **where)).unwrap()
            status, text = await reason("FailedDiscoveryCheck")
            url = "https://10.96.0.77:443/apis/visibility.example.com/v1beta1"
            assert (status, text.startswith(f"failing or missing response from {url}: ")) == ("False", True)
            # A group version that is served here needs no other server.
            patch = {"spec": {"service": reference}}
            await call(component, "patch", API_SERVICES, patch, name="v1beta1.metrics.k8s.io", patch_type="merge")
            served = await until(component, "v1beta1.metrics.k8s.io", lambda each: said(each)[1] == "Passed")
            assert said(served) == ("True", "Passed", "all checks passed")

    asyncio.run(scenario())


def test_an_api_service_that_is_wrong_is_refused_in_upstreams_words(tmp_path):
    async def refusal(component, document):
        response = await call(component, "create", API_SERVICES, document)
        assert response.code == 422
        return {f"{each['field']}: {each['message']}" for each in response.error().details["causes"]}

    async def scenario():
        async with a_server(tmp_path) as component:
            wrong = an_api_service("example.com", {"namespace": "default"})
            wrong["metadata"]["name"] = "v1.other.com"
            wrong["spec"] |= {"groupPriorityMinimum": 20001, "versionPriority": 0, "caBundle": "QQ=="}
            wanted = 'must be `spec.version+"."+spec.group`'
            assert await refusal(component, wrong) == {
                f'metadata.name: Invalid value: "v1.other.com": {wanted}: "v1beta1.example.com"',
                "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
                "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
                "spec.service.name: Required value",
                "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            }
            local = an_api_service("example.com", None)
            local["spec"] |= {"insecureSkipTLSVerify": True, "caBundle": "QQ=="}
            assert await refusal(component, local) == {
                'spec.caBundle: Invalid value: "1 bytes": local APIServices may not have a caBundle',
                "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
            }

    asyncio.run(scenario())


def test_each_address_of_a_service_has_an_ip_address(tmp_path):
    resource = "ipaddresses.networking.k8s.io"

    async def until_names(component, wanted):
        for _ in range(2000):
            if (found := await names(component, resource)).keys() == wanted:
                return found
            await asyncio.sleep(0.005)
        raise AssertionError(sorted(found))

    async def scenario():
        own = {"metadata": {"name": "10.1.2.3"}, "spec": {"parentRef": {"resource": "gateways", "name": "g"}}}
        own |= {"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress"}
        async with a_server(tmp_path, cluster_objects=True) as component:
            found = await names(component, resource)
            assert [*found] == ["10.96.0.1"]
            assert found["10.96.0.1"]["spec"]["parentRef"] == {
                "group": "", "resource": "services", "namespace": "default", "name": "kubernetes"}  # fmt: skip
            assert found["10.96.0.1"]["metadata"]["labels"] == {
                "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"
            }  # fmt: skip
            (await call(component, "create", resource, own)).unwrap()
            for name, address in (("web", "10.96.7.7"), ("headless", "None")):
                service = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name},
                           "spec": {"clusterIP": address, "ports": [{"port": 80}]}}  # fmt: skip
                (await call(component, "create", "services", service, namespace="default")).unwrap()
            await until_names(component, {"10.1.2.3", "10.96.0.1", "10.96.7.7"})
            (await call(component, "delete", "services", namespace="default", name="web")).unwrap()
            await until_names(component, {"10.1.2.3", "10.96.0.1"})

    asyncio.run(scenario())
