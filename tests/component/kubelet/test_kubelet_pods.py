"""Pods on nodes: the kubelet room against a real API server room, in virtual time."""


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def condition(pod, kind):
    return next(c for c in pod["status"]["conditions"] if c["type"] == kind)


def test_kubelet_1_a_new_kubelet_is_ready_and_beats_every_ten_seconds(simulate):
    async def story(w):
        import asyncio

        from services.api.meta import Key

        ready_s = w.clock.now()
        node = await w.admin.get("nodes", Key("", "n1"))
        renewed = []
        writes = w.agent().node_writes
        for _ in range(60):
            lease = await w.admin.get("leases.coordination.k8s.io", Key("kube-node-lease", "n1"))
            renewed.append(lease["spec"]["renewTime"])
            await asyncio.sleep(1.0)
        return ready_s, node, renewed, w.agent().node_writes - writes

    ready_s, node, renewed, writes = simulate(story)

    assert ready_s <= 2.0
    assert condition(node, "Ready")["status"] == "True"
    assert node["status"]["nodeInfo"]["kubeletSession"]
    changes = [i for i in range(1, 60) if renewed[i] != renewed[i - 1]]
    assert all(9 <= b - a <= 11 for a, b in zip(changes, changes[1:], strict=False))
    assert len(changes) >= 5
    assert writes <= 2


def test_a_bound_pod_runs(simulate):
    async def story(w):
        await w.create("p")
        return await w.until_pod("p", running)

    pod = simulate(story)

    assert condition(pod, "Ready")["status"] == "True"
    assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
