"""Numbers in sentences. Pure."""


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with what is counted: `1 pod`, `1,200 pods`. `many`: for more or less than one, where that is not
    `one` with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
