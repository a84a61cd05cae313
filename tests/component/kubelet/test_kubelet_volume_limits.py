"""A node that can attach fewer volumes than its pods want."""

NODES = ({"name": "n1", "cpu": "4", "attachableVolumes": 1},)
TEXT = "Node has reached its volume attachment limit, rejecting pod"


def claim(name):
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


async def two_pods(w):
    await w.create("first", spec=claim("db"))
    await w.until_pod("first", lambda pod: pod["status"].get("phase") == "Running")
    await w.create("late", spec=claim("logs"))


def test_kubelet_5_2_a_pod_with_a_volume_too_many_is_rejected_as_upstream(simulate):
    async def scenario(w):
        await two_pods(w)
        late = await w.until_pod("late", lambda pod: pod["status"].get("phase") == "Failed")
        return late, w.process.metrics()

    late, metrics = simulate(scenario, nodes=NODES)

    assert (late["status"]["reason"], late["status"]["message"]) == (
        "VolumeAttachmentLimitExceeded", f"Pod was rejected: {TEXT}",
    )  # fmt: skip
    assert metrics['kubelet_admission_rejections_total{reason="VolumeAttachmentLimitExceeded"}'] == 1


def test_a_claim_that_is_attached_for_another_pod_counts_once(simulate):
    async def scenario(w):
        await w.create("first", spec=claim("db"))
        await w.create("second", spec=claim("db"))
        return await w.until_pod("second", lambda pod: pod["status"].get("phase") == "Running")

    assert simulate(scenario, nodes=NODES)["status"]["phase"] == "Running"
