"""What `keplab status` says of DRA drivers: what kubelets know of them, and what they have published."""

import pytest

from lab.cli import registered_drivers as module
from lab.cli.registered_drivers import NO_SOCKET, registered_drivers
from services.runtime.mesh_directory import SOCKETS_FOLDER

DRIVER = "gpu.example.com"


def a_slice(pool, generation, devices):
    return {"pool": {"name": pool, "generation": generation}, "devices": [{"name": str(n)} for n in range(devices)]}


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        (None, (None, None, [])),
        ({}, (0, 0, [])),
        ({("n1", DRIVER): [a_slice("n1", 1, 4), a_slice("n1", 2, 2), a_slice("n1", 2, 3)]}, (2, 5, ["n1"])),
    ],
    ids=["unreadable", "none", "the newest generation"],
)
def test_what_cannot_be_read_is_unknown_and_what_is_not_there_is_nought(tmp_path, monkeypatch, published, expected):
    registry = tmp_path / SOCKETS_FOLDER / "n1" / module.REGISTRY
    registry.mkdir(parents=True)
    known = {"node": "n1", "driver": DRIVER, "registered": True, "socket": str(registry / "absent.sock")}
    monkeypatch.setattr(module, "_kubelet_drivers", lambda _, headers: iter([dict(known)]))
    monkeypatch.setattr(module, "_slices_by_driver", lambda _: published)

    (found,) = registered_drivers(tmp_path, {"kubeconfig": "k", "processes": []})

    assert expected == (found["slices"], found["devices"], found["pools"])
    assert NO_SOCKET == found["socket_state"]
