import pytest

from kubelet.pod.status import image_id


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("nginx", "docker.io/library/nginx"),
        ("nginx:1.27", "docker.io/library/nginx"),
        ("team/app:1", "docker.io/team/app"),
        ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause"),
        ("localhost:5000/a/b:1", "localhost:5000/a/b"),
    ],
)
def test_an_image_is_named_by_its_repository_and_a_digest(image, repository):
    name, digest = image_id(image).split("@sha256:")

    assert name == repository
    assert len(digest) == 64


def test_a_digest_that_is_asked_for_stays():
    assert image_id("ghcr.io/a@sha256:11") == "ghcr.io/a@sha256:11"
    assert image_id("a:1") != image_id("a:2")
