"""Default pull policy of images. Source: upstream `pkg/apis/core/v1/defaults.go` (v1.36), `SetDefaults_Container`."""

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def pull_policy(image: str) -> str:
    """Return the default pull policy of an image reference: Always for the tag `latest`, which may change."""
    if "@" in image:
        return "IfNotPresent"
    return "Always" if image.rpartition("/")[2].partition(":")[2] in ("", "latest") else "IfNotPresent"
