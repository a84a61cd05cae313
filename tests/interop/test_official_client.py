"""The official Python client against a whole mesh: what its examples do, with the types checked that it checks."""

import base64
import copy
import datetime
import queue
import subprocess
import sys
import threading

import pytest
import yaml
from conftest import until
from kubernetes import client, config, dynamic, informer, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.config.incluster_config import InClusterConfigLoader

CRON_TABS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "crontabs.official.example.com"},
    "spec": {
        "group": "official.example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "image": {"type": "string"},
                                    "replicas": {"type": "integer", "minimum": 0, "default": 1},
                                },
                            },
                            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def api(whole_mesh):
    return config.new_client_from_config(whole_mesh.kubeconfig)


@pytest.fixture(scope="module")
def core(api):
    return client.CoreV1Api(api)


@pytest.fixture(scope="module")
def apps(api):
    return client.AppsV1Api(api)


def a_deployment(name="web", replicas=1):
    labels = {"app": name}
    container = client.V1Container(
        name="nginx",
        image="nginx:1.15.4",
        ports=[client.V1ContainerPort(container_port=80)],
        resources=client.V1ResourceRequirements(requests={"cpu": "10m"}, limits={"memory": "64Mi"}),
    )
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(
        replicas=replicas, template=template, selector=client.V1LabelSelector(match_labels=labels)
    )
    return client.V1Deployment(metadata=client.V1ObjectMeta(name=name), spec=spec)


def a_pod(name="p", **spec):
    container = client.V1Container(name="c", image="nginx:1")
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"app": name}),
        spec=client.V1PodSpec(containers=[container], **spec),
    )


def available(apps, space, name, count):
    def holds():
        found = apps.read_namespaced_deployment_status(name, space)
        status = found.status
        return status and (
            status.observed_generation == found.metadata.generation
            and status.updated_replicas == status.replicas == status.available_replicas == count
        )

    return until(holds)


def running(core, space, name):
    until(lambda: core.read_namespaced_pod(name, space).status.phase == "Running")


def gone(read):
    def holds():
        try:
            read()
        except ApiException as error:
            return error.status == 404
        return False

    return until(holds)


def test_a_deployment_is_made_updated_restarted_scaled_and_deleted(apps, core, space):
    apps.create_namespaced_deployment(space, a_deployment())
    available(apps, space, "web", 1)
    changed = a_deployment()
    changed.spec.template.spec.containers[0].image = "nginx:1.16.0"
    apps.patch_namespaced_deployment("web", space, changed)
    available(apps, space, "web", 1)
    now = datetime.datetime.now(datetime.UTC).isoformat()
    annotations = {"kubectl.kubernetes.io/restartedAt": now}
    apps.patch_namespaced_deployment("web", space, {"spec": {"template": {"metadata": {"annotations": annotations}}}})
    available(apps, space, "web", 1)
    scale = apps.read_namespaced_deployment_scale("web", space)
    scale.spec.replicas = 2
    scale.metadata.resource_version = None  # the controller may write the status in between
    apps.replace_namespaced_deployment_scale("web", space, scale)
    available(apps, space, "web", 2)
    sets = apps.list_namespaced_replica_set(space, label_selector="app=web").items
    assert sorted(each.metadata.annotations["deployment.kubernetes.io/revision"] for each in sets) == ["1", "2", "3"]
    pods = core.list_namespaced_pod(space, label_selector="app=web", field_selector="status.phase=Running").items
    assert {c.image for pod in pods for c in pod.spec.containers} == {"nginx:1.16.0"}
    options = client.V1DeleteOptions(propagation_policy="Foreground", grace_period_seconds=1)
    apps.delete_namespaced_deployment("web", space, body=options)
    gone(lambda: apps.read_namespaced_deployment("web", space))
    assert apps.list_namespaced_replica_set(space).items == []


def test_jobs_complete_and_cron_jobs_make_them(api, core, space):
    batch = client.BatchV1Api(api)
    container = client.V1Container(name="pi", image="perl:5", command=["perl", "-Mbignum=bpi", "-wle", "print bpi(9)"])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "pi"}),
        spec=client.V1PodSpec(restart_policy="Never", containers=[container]),
    )
    job = client.V1Job(
        metadata=client.V1ObjectMeta(name="pi"), spec=client.V1JobSpec(template=template, backoff_limit=4)
    )
    batch.create_namespaced_job(space, job)
    until(lambda: (status := batch.read_namespaced_job_status("pi", space).status) and status.completion_time)
    pod = core.list_namespaced_pod(space, label_selector="job-name=pi").items[0]
    assert pod.status.container_statuses[0].state.terminated.exit_code == 0
    batch.delete_namespaced_job("pi", space, propagation_policy="Background", grace_period_seconds=0)
    gone(lambda: core.read_namespaced_pod(pod.metadata.name, space))
    spec = client.V1CronJobSpec(schedule="*/5 * * * *", job_template=client.V1JobTemplateSpec(spec=job.spec))
    batch.create_namespaced_cron_job(space, client.V1CronJob(metadata=client.V1ObjectMeta(name="cj"), spec=spec))
    assert batch.patch_namespaced_cron_job("cj", space, {"spec": {"suspend": True}}).spec.suspend
    by_hand = batch.read_namespaced_cron_job("cj", space).spec.job_template
    batch.create_namespaced_job(space, client.V1Job(metadata={"generateName": "cj-"}, spec=by_hand.spec))
    until(lambda: (status := batch.list_namespaced_job(space).items[0].status) and status.succeeded)
    batch.delete_namespaced_cron_job("cj", space)


def test_services_ingresses_and_network_policies_are_typed(api, core, space):
    ports = [client.V1ServicePort(name="http", port=80, target_port="http")]
    spec = client.V1ServiceSpec(selector={"app": "web"}, ports=ports, type="NodePort")
    service = core.create_namespaced_service(space, client.V1Service(metadata={"name": "web"}, spec=spec))
    assert 30000 <= service.spec.ports[0].node_port <= 32767
    service.spec.ports.append(client.V1ServicePort(name="https", port=443))
    assert len(core.replace_namespaced_service("web", space, service).spec.ports) == 2
    net = client.NetworkingV1Api(api)
    backend = client.V1IngressBackend(
        service=client.V1IngressServiceBackend(name="web", port=client.V1ServiceBackendPort(number=80))
    )
    paths = [client.V1HTTPIngressPath(path="/", path_type="Exact", backend=backend)]
    rule = client.V1IngressRule(host="example.com", http=client.V1HTTPIngressRuleValue(paths=paths))
    ingress = client.V1Ingress(metadata={"name": "web"}, spec=client.V1IngressSpec(rules=[rule]))
    assert net.create_namespaced_ingress(space, ingress).spec.rules[0].host == "example.com"
    policy = {"metadata": {"name": "deny"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
    assert net.create_namespaced_network_policy(space, policy).spec.policy_types == ["Ingress"]
    assert core.delete_namespaced_service("web", space).metadata.name == "web"
    net.delete_namespaced_ingress("web", space)
    gone(lambda: net.read_namespaced_ingress("web", space))


def test_config_maps_and_secrets_take_every_form_of_patch(core, space):
    core.create_namespaced_config_map(space, client.V1ConfigMap(metadata={"name": "c"}, data={"a": "1", "b": "2"}))
    merged = core.patch_namespaced_config_map("c", space, {"data": {"a": None, "d": "3"}})
    assert merged.data == {"b": "2", "d": "3"}
    steps = [{"op": "test", "path": "/data/b", "value": "2"}, {"op": "add", "path": "/data/e", "value": "5"}]
    assert core.patch_namespaced_config_map("c", space, steps).data["e"] == "5"
    stale = core.read_namespaced_config_map("c", space)
    core.patch_namespaced_config_map("c", space, {"data": {"f": "6"}})
    with pytest.raises(ApiException) as conflict:
        core.replace_namespaced_config_map("c", space, stale)
    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
    secret = client.V1Secret(metadata={"name": "s"}, string_data={"user": "ann"})
    core.create_namespaced_secret(space, secret)
    assert base64.b64decode(core.read_namespaced_secret("s", space).data["user"]) == b"ann"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ssa"}, "data": {"x": "1"}}
    words = {"field_manager": "one", "_content_type": "application/apply-patch+yaml"}
    core.patch_namespaced_config_map("ssa", space, applied, **words)
    applied["data"]["x"] = "2"
    with pytest.raises(ApiException, match=r"conflict with \\\"one\\\": \.data\.x"):
        core.patch_namespaced_config_map("ssa", space, applied, **{**words, "field_manager": "two"})
    forced = core.patch_namespaced_config_map("ssa", space, applied, **{**words, "field_manager": "two"}, force=True)
    assert (forced.data, forced.metadata.managed_fields[0].manager) == ({"x": "2"}, "two")


def test_a_watch_resumes_where_it_ended_and_reads_all_of_a_log(core, space):
    core.create_namespaced_pod(space, a_pod(termination_grace_period_seconds=1))
    seen, watcher = [], watch.Watch()
    for event in watcher.stream(core.list_namespaced_pod, space, timeout_seconds=20):
        seen.append(event["object"].status.phase)
        if seen[-1] == "Running":
            watcher.stop()
    assert seen[0] == "Pending"
    version = watcher.resource_version
    log = watch.Watch().stream(core.read_namespaced_pod_log, name="p", namespace=space, follow=True)
    lines = queue.SimpleQueue()
    reading = threading.Thread(target=lambda: [lines.put(line) for line in log])
    reading.start()
    assert "started" in lines.get(timeout=10)
    core.delete_namespaced_pod("p", space)
    kinds = [
        event["type"]
        for event in watch.Watch().stream(core.list_namespaced_pod, space, resource_version=version, timeout_seconds=4)
    ]
    assert "ADDED" not in kinds
    assert (kinds[0], kinds[-1]) == ("MODIFIED", "DELETED")
    reading.join(10)
    assert not reading.is_alive()
    with pytest.raises(ApiException) as expired:
        for _ in watch.Watch().stream(core.list_namespaced_pod, space, resource_version="1", timeout_seconds=2):
            pass
    assert expired.value.status == 410


def test_lists_come_in_pages(core, space):
    for number in range(7):
        core.create_namespaced_config_map(space, {"metadata": {"name": f"c{number}", "labels": {"a": str(number % 2)}}})
    names, after = [], None
    while True:
        page = core.list_namespaced_config_map(space, limit=3, _continue=after)
        names += [each.metadata.name for each in page.items]
        if not (after := page.metadata._continue):
            break
        assert page.metadata.remaining_item_count == 8 - len(names)
    assert names == [*(f"c{number}" for number in range(7)), "kube-root-ca.crt"]
    core.delete_collection_namespaced_config_map(space, label_selector="a=1")
    assert len(core.list_namespaced_config_map(space).items) == 5
    table = core.list_namespaced_config_map(space, _preload_content=False)
    assert b'"kind":"ConfigMapList"' in table.data


def test_an_informer_keeps_a_cache(core, space):
    cache_of = informer.SharedInformer(core.list_namespaced_config_map, namespace=space)
    events = queue.SimpleQueue()
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        cache_of.add_event_handler(kind, lambda found, kind=kind: events.put((kind, found.metadata.name)))
    cache_of.start()
    try:
        until(lambda: cache_of.cache.list_keys())
        core.create_namespaced_config_map(space, {"metadata": {"name": "i"}})
        core.patch_namespaced_config_map("i", space, {"data": {"x": "y"}})
        until(lambda: (found := cache_of.cache.get_by_key(f"{space}/i")) and found.data == {"x": "y"})
        core.delete_namespaced_config_map("i", space)
        until(lambda: f"{space}/i" not in cache_of.cache.list_keys())
    finally:
        cache_of.stop()
    seen = [events.get() for _ in range(events.qsize())]
    assert [kind for kind, name in seen if name == "i"] == ["ADDED", "MODIFIED", "DELETED"]


CANDIDATE = """
import sys
from kubernetes import config
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

kubeconfig, space, name = sys.argv[1:]
config.load_kube_config(kubeconfig)
led = lambda *_: print(name, "leads", flush=True)
lasts = {"lease_duration": 3, "renew_deadline": 2, "retry_period": 1}
LeaderElection(Config(LeaseLock("l", space, name), **lasts, onstarted_leading=led, onstopped_leading=None)).run()
"""


def test_another_candidate_leads_once_the_leader_is_killed(whole_mesh, api, space):
    def started(name):
        words = [sys.executable, "-c", CANDIDATE, whole_mesh.kubeconfig, space, name]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    leases = client.CoordinationV1Api(api)
    first, second = started("one"), None
    try:
        assert first.stdout.readline() == "one leads\n"
        second = started("two")
        until(lambda: leases.read_namespaced_lease("l", space).spec.renew_time)
        first.kill()
        assert second.stdout.readline() == "two leads\n"
        assert leases.read_namespaced_lease("l", space).spec.holder_identity == "two"
    finally:
        for each in filter(None, (first, second)):
            each.kill()
            each.communicate()


def test_evictions_respect_budgets_and_a_node_is_drained(api, core, space):
    policy = client.PolicyV1Api(api)
    core.create_namespaced_pod(space, a_pod())
    running(core, space, "p")
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}}
    policy.create_namespaced_pod_disruption_budget(space, budget)
    until(lambda: policy.read_namespaced_pod_disruption_budget("b", space).status.current_healthy)
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="p", namespace=space))
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_eviction("p", space, eviction)
    assert refused.value.status == 429
    policy.delete_namespaced_pod_disruption_budget("b", space)
    node = core.read_namespaced_pod("p", space).spec.node_name
    core.patch_node(node, {"spec": {"unschedulable": True}})
    try:
        chosen = f"spec.nodeName={node},metadata.namespace={space}"
        for pod in core.list_pod_for_all_namespaces(field_selector=chosen).items:
            where = client.V1ObjectMeta(name=pod.metadata.name, namespace=space)
            core.create_namespaced_pod_eviction(pod.metadata.name, space, client.V1Eviction(metadata=where))
        gone(lambda: core.read_namespaced_pod("p", space))
    finally:
        core.patch_node(node, {"spec": {"unschedulable": None}})
    assert core.read_node(node).spec.taints is None or not core.read_node(node).spec.unschedulable


def test_a_program_in_a_pod_finds_the_server_by_its_service_account(whole_mesh, api, core, space, tmp_path):
    rbac = client.RbacAuthorizationV1Api(api)
    core.create_namespaced_service_account(space, {"metadata": {"name": "reader"}})
    rule = client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["get", "list"])
    rbac.create_namespaced_role(space, client.V1Role(metadata={"name": "r"}, rules=[rule]))
    subject = client.RbacV1Subject(kind="ServiceAccount", name="reader", namespace=space)
    role = client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="r")
    rbac.create_namespaced_role_binding(
        space, client.V1RoleBinding(metadata={"name": "r"}, subjects=[subject], role_ref=role)
    )
    asked = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600))
    token = core.create_namespaced_service_account_token("reader", space, asked).status.token
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_text(core.read_namespaced_config_map("kube-root-ca.crt", space).data["ca.crt"])
    server = api.configuration.host.removeprefix("https://")
    environment = {"KUBERNETES_SERVICE_HOST": server.split(":")[0], "KUBERNETES_SERVICE_PORT": server.split(":")[1]}
    inside = client.Configuration()
    InClusterConfigLoader(str(tmp_path / "token"), str(tmp_path / "ca.crt"), environ=environment).load_and_set(inside)
    own = client.CoreV1Api(client.ApiClient(inside))
    assert [each.metadata.name for each in own.list_namespaced_config_map(space).items] == ["kube-root-ca.crt"]
    with pytest.raises(ApiException) as refused:
        own.list_namespaced_secret(space)
    user = f"system:serviceaccount:{space}:reader"
    assert f'User \\"{user}\\" cannot list resource \\"secrets\\"' in refused.value.body
    review = client.AuthenticationV1Api(api).create_token_review({"spec": {"token": token}})
    assert (review.status.authenticated, review.status.user.username) == (True, user)
    access = client.AuthorizationV1Api(api)
    attributes = client.V1ResourceAttributes(namespace=space, verb="list", resource="configmaps")
    asked = {"spec": {"user": user, "resourceAttributes": attributes.to_dict()}}
    assert access.create_subject_access_review(asked).status.allowed
    mine = client.AuthorizationV1Api(client.ApiClient(inside))
    rules = mine.create_self_subject_rules_review({"spec": {"namespace": space}}).status.resource_rules
    assert ["get", "list"] in [each.verbs for each in rules]


def test_the_dynamic_client_discovers_defines_and_applies(api, space):
    found = dynamic.DynamicClient(api)
    definitions = found.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    definitions.create(body=CRON_TABS)
    try:
        until(lambda: "Established" in str(definitions.get(name=CRON_TABS["metadata"]["name"]).status.conditions))
        tabs = dynamic.DynamicClient(api).resources.get(api_version="official.example.com/v1", kind="CronTab")
        body = {"apiVersion": tabs.group_version, "kind": "CronTab", "metadata": {"name": "t"}, "spec": {"image": "i"}}
        assert tabs.create(body=body, namespace=space).spec.replicas == 1
        wrong = copy.deepcopy(body)
        wrong["metadata"]["name"], wrong["spec"]["replicas"] = "u", -1
        with pytest.raises(dynamic.exceptions.UnprocessibleEntityError, match="should be greater than or equal to 0"):
            tabs.create(body=wrong, namespace=space)
        tabs.patch(
            body={"spec": {"replicas": 4}}, name="t", namespace=space, content_type="application/merge-patch+json"
        )
        tabs.status.patch(
            body={"status": {"phase": "Up"}}, name="t", namespace=space, content_type="application/merge-patch+json"
        )
        seen = [event["type"] for event in tabs.watch(namespace=space, timeout=1)]
        assert (tabs.get(name="t", namespace=space).status.phase, seen) == ("Up", ["ADDED"])
        assert [each.metadata.name for each in tabs.get(namespace=space).items] == ["t"]
        tabs.delete(name="t", namespace=space)
    finally:
        definitions.delete(name=CRON_TABS["metadata"]["name"])
    maps = found.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"a": "1"}}
    assert maps.server_side_apply(body=body, namespace=space, field_manager="dyn").data.a == "1"
    nodes = found.resources.get(api_version="v1", kind="Node")
    assert nodes.patch(body={"metadata": {"labels": {"official": "yes"}}}, name="node-0").metadata.labels.official
    assert [each.metadata.name for each in nodes.get(label_selector="official=yes").items] == ["node-0"]


def test_files_are_created_whole(api, apps, core, space, tmp_path):
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}},
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}},
                {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {}},
            ],
        },
        api.sanitize_for_serialization(a_deployment("filed")) | {"apiVersion": "apps/v1", "kind": "Deployment"},
    ]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(documents))
    made = utils.create_from_yaml(api, str(tmp_path / "all.yaml"), namespace=space)
    assert [each.kind for group in made for each in group][-1] == "Deployment"
    with pytest.raises(utils.FailToCreateError, match="already exists"):
        utils.create_from_directory(api, str(tmp_path), namespace=space)
    again = utils.create_from_yaml(api, yaml_objects=documents, namespace=space, apply=True)
    assert len(again) == 3
    available(apps, space, "filed", 1)
    assert core.read_namespaced_service("a", space).metadata.managed_fields


def test_kinds_of_all_groups_are_read_with_their_types(api, core, space):
    groups = {each.name for each in client.ApisApi(api).get_api_versions().groups}
    assert {"apps", "batch", "networking.k8s.io", "resource.k8s.io", "storage.k8s.io"} <= groups
    assert client.CoreApi(api).get_api_versions().versions == ["v1"]
    assert client.VersionApi(api).get_code().minor == "36"
    listed = (
        core.list_node,
        core.list_persistent_volume,
        client.StorageV1Api(api).list_storage_class,
        client.StorageV1Api(api).list_csi_node,
        client.SchedulingV1Api(api).list_priority_class,
        client.RbacAuthorizationV1Api(api).list_cluster_role,
        client.ApiextensionsV1Api(api).list_custom_resource_definition,
        client.ApiregistrationV1Api(api).list_api_service,
        client.AdmissionregistrationV1Api(api).list_validating_webhook_configuration,
        client.CertificatesV1Api(api).list_certificate_signing_request,
        client.CoordinationV1Api(api).list_lease_for_all_namespaces,
        client.DiscoveryV1Api(api).list_endpoint_slice_for_all_namespaces,
        core.list_event_for_all_namespaces,
        client.FlowcontrolApiserverV1Api(api).list_flow_schema,
        client.NodeV1Api(api).list_runtime_class,
        client.ResourceV1Api(api).list_device_class,
        client.AutoscalingV2Api(api).list_horizontal_pod_autoscaler_for_all_namespaces,
    )
    for call in listed:
        assert call().metadata.resource_version, call
    assert utils.parse_quantity(core.read_node("node-0").status.allocatable["cpu"]) > 0


def test_calls_of_many_threads_are_answered(core, space):
    calls = [
        core.create_namespaced_config_map(space, {"metadata": {"name": f"t{number}"}}, async_req=True)
        for number in range(20)
    ]
    assert sorted(call.get(10).metadata.name for call in calls) == sorted(f"t{number}" for number in range(20))


def test_a_program_that_reads_its_kubeconfig_by_the_environment_lists_pods(whole_mesh, space, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", whole_mesh.kubeconfig)
    contexts, active = config.list_kube_config_contexts(config_file=whole_mesh.kubeconfig)
    assert [each["name"] for each in contexts] == [active["name"]]
    config.load_config(config_file=whole_mesh.kubeconfig)
    assert client.CoreV1Api().list_namespaced_pod(space).items == []
