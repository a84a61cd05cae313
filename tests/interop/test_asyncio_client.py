"""kubernetes_asyncio against a whole mesh: what its examples do, streams over WebSockets among them."""

import asyncio
import json

import pytest
import yaml
from kubernetes_asyncio import client, config, dynamic, utils, watch
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader
from kubernetes_asyncio.leaderelection import electionconfig, leaderelection
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes_asyncio.stream import WsApiClient

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
}
POD = {"metadata": {"name": "p"}, "spec": {**TEMPLATE["spec"], "terminationGracePeriodSeconds": 1}}


@pytest.fixture
def with_client(whole_mesh):
    """Return a function that runs a coroutine function with an API client."""

    def run(program):
        async def main():
            async with await config.new_client_from_config(config_file=whole_mesh.kubeconfig) as api:
                return await program(api)

        return asyncio.run(asyncio.wait_for(main(), 60))

    return run


async def until(holds):
    for _ in range(600):
        if found := await holds():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("not so after 30 s")


async def running(core, space, name="p"):
    async def holds():
        return (await core.read_namespaced_pod(name, space)).status.phase == "Running"

    await until(holds)


def test_a_deployment_is_made_scaled_restarted_and_deleted(with_client, space):
    async def program(api):
        apps = client.AppsV1Api(api)
        await apps.create_namespaced_deployment(space, DEPLOYMENT)

        def has_available(count):
            async def holds():
                status = (await apps.read_namespaced_deployment("web", space)).status
                return status and status.available_replicas == status.updated_replicas == status.replicas == count

            return holds

        assert await until(has_available(2))
        await apps.patch_namespaced_deployment_scale("web", space, {"spec": {"replicas": 1}})
        assert await until(has_available(1))
        again = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
        patch = {"spec": {"template": {"metadata": {"annotations": again}}}}
        await apps.patch_namespaced_deployment("web", space, patch)

        async def two_sets():
            return len((await apps.list_namespaced_replica_set(space)).items) == 2

        assert await until(two_sets)
        assert await until(has_available(1))
        await apps.delete_namespaced_deployment("web", space, propagation_policy="Background")

        async def is_gone():
            return not (await apps.list_namespaced_deployment(space)).items

        assert await until(is_gone)

    with_client(program)


def test_lists_of_many_kinds_and_pages_are_read_at_once(with_client, space):
    async def program(api):
        core = client.CoreV1Api(api)
        made = (core.create_namespaced_config_map(space, {"metadata": {"name": f"c{n}"}}) for n in range(12))
        await asyncio.gather(*made)
        names, after = [], None
        while after != "":
            page = await core.list_namespaced_config_map(space, limit=5, **({"_continue": after} if after else {}))
            names += [each.metadata.name for each in page.items]
            after = page.metadata._continue or ""
        assert len(names) == len(set(names)) == 13
        nodes, roles, classes, jobs = await asyncio.gather(
            core.list_node(),
            client.RbacAuthorizationV1Api(api).list_cluster_role(),
            client.StorageV1Api(api).list_storage_class(),
            client.BatchV1Api(api).list_job_for_all_namespaces(),
        )
        assert {each.metadata.name for each in nodes.items} == {"node-0", "node-1"}
        assert "cluster-admin" in [each.metadata.name for each in roles.items]
        assert classes.metadata.resource_version
        assert jobs.metadata.resource_version

    with_client(program)


def test_two_watches_follow_while_objects_are_written(with_client, space):
    async def program(api):
        core = client.CoreV1Api(api)
        version = (await core.list_namespaced_config_map(space)).metadata.resource_version

        async def follow(**words):
            seen = []
            async with watch.Watch().stream(core.list_namespaced_config_map, space, **words) as stream:
                async for event in stream:
                    seen.append((event["type"], event["object"].metadata.name))
                    if event["type"] == "DELETED":
                        break
            return seen

        words = {"resource_version": version, "timeout_seconds": 20}
        all_of_it = asyncio.create_task(follow(**words))
        labelled = asyncio.create_task(follow(**words, label_selector="a=b"))
        await core.create_namespaced_config_map(space, {"metadata": {"name": "w"}})
        await core.patch_namespaced_config_map("w", space, {"metadata": {"labels": {"a": "b"}}})
        await core.patch_namespaced_config_map("w", space, {"metadata": {"labels": {"a": None}}})
        await core.delete_namespaced_config_map("w", space)
        return await all_of_it, await labelled

    every, some = with_client(program)
    assert [kind for kind, _ in every] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert some == [("ADDED", "w"), ("DELETED", "w")]


def test_commands_run_over_a_web_socket_and_logs_are_followed(whole_mesh, with_client, space):
    async def program(api):
        core = client.CoreV1Api(api)
        await core.create_namespaced_pod(space, POD)
        await running(core, space)
        log = await core.read_namespaced_pod_log("p", space, follow=True, _preload_content=False)
        async with WsApiClient(configuration=api.configuration) as sockets:
            call = client.CoreV1Api(sockets).connect_get_namespaced_pod_exec
            words = {"stderr": True, "stdin": False, "stdout": True, "tty": False}
            said = await call("p", space, command=["sh", "-c", "echo out; echo err >&2"], **words)
            session = await call("p", space, command=["sh", "-c", "exit 5"], **words, _preload_content=False)
            async with session as socket:
                while message := await socket.receive():
                    if message.data and message.data[0] == 3:
                        code = sockets.parse_error_data(message.data[1:].decode())
                        break
            typed = await call("p", space, command=["cat"], **{**words, "stdin": True}, _preload_content=False)
            async with typed as socket:
                await socket.send_bytes(b"\x00typed\n")
                echoed = b""
                while b"typed" not in echoed:
                    echoed += (await socket.receive(10)).data or b""
        await core.delete_namespaced_pod("p", space)
        lines = (await log.content.read()).decode().splitlines()
        return said, code, lines

    said, code, lines = with_client(program)
    assert sorted(said.split()) == ["err", "out"]
    assert code == 5
    assert "started" in lines[0]


def test_candidates_lead_one_after_the_other(with_client, space):
    async def program(api):
        order = []

        def candidate(name, over):
            async def lead():
                order.append(name)
                await over.wait()

            async def stopped():
                order.append(f"{name} stopped")

            words = {"lease_duration": 3, "renew_deadline": 2, "retry_period": 1.1}
            lock = LeaseLock("l", space, name, api)
            found = electionconfig.Config(lock, **words, onstarted_leading=lead, onstopped_leading=stopped)
            return asyncio.create_task(leaderelection.LeaderElection(found).run())

        async def leads(name):
            async def holds():
                return name in order

            await until(holds)

        over = asyncio.Event()
        one = candidate("one", over)
        await leads("one")
        two = candidate("two", over)
        one.cancel()
        await leads("two")
        lease = await client.CoordinationV1Api(api).read_namespaced_lease("l", space)
        two.cancel()
        await asyncio.gather(one, two, return_exceptions=True)
        return order, lease.spec.holder_identity

    order, holder = with_client(program)
    assert ([each for each in order if " " not in each], holder) == (["one", "two"], "two")


def test_the_dynamic_client_and_files(with_client, space, tmp_path):
    async def program(api):
        found = await dynamic.DynamicClient(api)
        maps = await found.resources.get(api_version="v1", kind="ConfigMap")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"a": "1"}}
        await maps.create(body=body, namespace=space)
        patched = await maps.patch(
            body={"data": {"a": "2"}}, name="d", namespace=space, content_type="application/merge-patch+json"
        )
        applied = await maps.server_side_apply(
            body={**body, "data": {"b": "3"}}, name="d", namespace=space, field_manager="me", force_conflicts=True
        )
        await maps.delete(name="d", namespace=space)
        (tmp_path / "f.yaml").write_text(yaml.safe_dump_all([DEPLOYMENT, {**body, "metadata": {"name": "f"}}]))
        await utils.create_from_yaml(api, str(tmp_path / "f.yaml"), namespace=space)
        with pytest.raises(utils.FailToCreateError):
            await utils.create_from_yaml(api, str(tmp_path / "f.yaml"), namespace=space)
        return patched.data.a, applied.data.to_dict()

    assert with_client(program) == ("2", {"a": "2", "b": "3"})


def test_a_program_in_a_pod_uses_its_token_and_reviews_answer(with_client, space, tmp_path):
    async def program(api):
        core = client.CoreV1Api(api)
        token = await core.create_namespaced_service_account_token("default", space, {"spec": {"audiences": []}})
        (tmp_path / "token").write_text(token.status.token)
        trusted = await core.read_namespaced_config_map("kube-root-ca.crt", space)
        (tmp_path / "ca.crt").write_text(trusted.data["ca.crt"])
        host, port = api.configuration.host.removeprefix("https://").split(":")
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        inside = client.Configuration()
        loader = InClusterConfigLoader(
            token_filename=str(tmp_path / "token"), cert_filename=str(tmp_path / "ca.crt"), environ=environment
        )
        loader._load_config()
        loader._set_config(inside)
        async with client.ApiClient(configuration=inside) as own:
            who = await client.AuthenticationV1Api(own).create_self_subject_review({})
            with pytest.raises(ApiException) as refused:
                await client.CoreV1Api(own).list_namespaced_pod(space)
        asked = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}
        may = await client.AuthorizationV1Api(api).create_self_subject_access_review(asked)
        return who.status.user_info.username, refused.value.status, json.loads(refused.value.body), may.status.allowed

    user, code, body, may = with_client(program)
    assert (user, code, may) == (f"system:serviceaccount:{space}:default", 403, True)
    assert body["reason"] == "Forbidden"
