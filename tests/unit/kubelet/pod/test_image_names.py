"""Names of images that a kubelet cannot read, in the words of upstream's."""

import pytest

from kubelet.pod.image_names import problem_of

SHA = "a" * 64


@pytest.mark.parametrize(
    "image",
    ["app", "app:1", "library/app", "quay.io/a/b_c/d--e:v1.2", "localhost/x", "localhost:5000/x/y:z", "UPPER.io/x",
     f"app@sha256:{SHA}", f"reg:5000/app:1@sha256:{SHA}", "[::1]:5000/a", "a__b", "index.docker.io/app", "UPPER/x"],
)  # fmt: skip
def test_a_name_that_can_be_read(image):
    assert problem_of(image) == ""


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("UPPER/Case:1", "invalid reference format: repository name (Case) must be lowercase"),
        ("MyApp:1", "invalid reference format: repository name (library/MyApp) must be lowercase"),
        ("hub/me/It-GGUF:Q4", "invalid reference format: repository name (hub/me/It-GGUF) must be lowercase"),
        ("nginx:", "invalid reference format"),
        ("https://harbor/app:1", "invalid reference format"),
        (":sha-1", "invalid reference format"),
        ("a//b", "invalid reference format"),
        ("app:1:2", "invalid reference format"),
        ("app name", "invalid reference format"),
        (f"app:{'t' * 129}", "invalid reference format"),
        (SHA, f"invalid repository name ({SHA}), cannot specify 64-byte hexadecimal strings"),
        ("app@md5:" + "a" * 32, "unsupported digest algorithm"),
        ("app@sha256:" + "a" * 40, "invalid checksum digest length"),
        ("q.io/" + "a" * 256, "repository name must not be more than 255 characters"),
    ],
)
def test_a_name_that_cannot_be_read_is_said_as_upstream_does(image, problem):
    text = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {problem}'
    assert problem_of(image) == text
