"""When an image is pulled. Source: upstream `pkg/apis/core/v1/defaults.go` (v1.36), `SetDefaults_Container`."""

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def pull_policy(image: str) -> str:
    """Return the default for a reference: Always for what may change, the tag `latest`."""
    if "@" in image:
        return "IfNotPresent"
    return "Always" if image.rpartition("/")[2].partition(":")[2] in ("", "latest") else "IfNotPresent"
