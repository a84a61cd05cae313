"""Numbers in sentences: a count with its noun. Pure."""


def count_text(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 pod`, `1,200 pods`. `many`: the plural, where it is not `one` with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
