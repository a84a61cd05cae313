"""Text form of template and revision hashes in names and labels."""

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of hash texts: no vowels or look-alikes, so that no bad word can appear."""


def hash_text(value: int) -> str:
    """Return a hash as a text: each decimal digit as one of the characters `456789bcdf`.

    Source: upstream `staging/src/k8s.io/apimachinery/pkg/util/rand/rand.go` (SafeEncodeString).
    """
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(value))
