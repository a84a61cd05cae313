"""Manifests in the style of public ones: each applies whole with kubectl, what it runs comes to run, and all of it goes."""

import re
from pathlib import Path

import pytest
from test_whole_mesh import kubectl, until  # noqa: F401  the fixture

FOLDER = Path(__file__).parent / "manifests"
FILES = {
    "web": ["deployment/web"],
    "certificates": ["deployment/certificates"],
    "monitoring": ["deployment/prometheus"],
    "database": ["statefulset/db"],
    "logging": ["daemonset/logs"],
    "batch": ["job/indexed", "job/pi"],
    "network": [],
    "rights": [],
    "policy": ["replicationcontroller/old"],
    "workflow": ["deployment/workflows"],
}
"""What each of the ten brings up."""


@pytest.mark.parametrize("name", FILES)
def test_a_public_manifest_applies_whole_its_workloads_run_and_it_is_deleted_whole(kubectl, name):  # noqa: F811
    paths = [*sorted(FOLDER.glob(f"{name}*.yaml"))]
    wanted = set(re.findall(r"^kind: (\w+)", "".join(path.read_text() for path in paths), re.M))
    own = set(re.findall(r"names: \{kind: (\w+)", "".join(path.read_text() for path in paths)))
    served = {line.split()[-1] for line in kubectl("api-resources", "--no-headers").splitlines() if line.strip()}
    if missing := wanted - own - served:
        pytest.skip(f"not served: {', '.join(sorted(missing))}")
    for path in paths:
        kubectl("apply", "-f", str(path))
        if "definitions" in path.name:
            kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
            until(lambda: kubectl("api-resources", "--no-headers"), rf" {own.copy().pop()}$")
    for each in FILES[name]:
        kind = each.split("/")[0]
        if kind == "job":
            kubectl("wait", "--for=condition=Complete", each, "--timeout=30s")
        elif kind == "replicationcontroller":
            until(lambda: kubectl("get", each), r"^old +2 +2 +2 ")  # noqa: B023  asked at once
        else:
            kubectl("rollout", "status", each, "--timeout=30s")
    again = "".join(kubectl("apply", "-f", str(path)) for path in paths)
    # Nothing that a server filled in counts as a change, but in what patches always replace: a budget's selector, and
    # claim templates, rules of webhooks and endpoints of slices, which get defaults or zeros.
    replaced = ("poddisruptionbudget", "statefulset", "validatingwebhookconfiguration", "endpointslice")
    changed = [line for line in again.splitlines() if re.search(" (configured|created)$", line)]
    assert [line for line in changed if not line.startswith(replaced)] == []
    for path in reversed(paths):
        deleted = kubectl("delete", "-f", str(path), "--timeout=40s")
        assert len(re.findall('" deleted', deleted)) == len(re.findall(r"^kind: ", path.read_text(), re.M))
        assert "NAME" not in kubectl("get", "-f", str(path), "--ignore-not-found")
