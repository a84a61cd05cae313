"""Numbers that may be percentages, such as `maxUnavailable: 25%`; upstream's IntOrString."""


def resolve(value: int | str | None, total: int, *, is_up: bool) -> int:
    """Return a number or a percentage of `total` as a number, rounded up or down.

    Raises: ValueError naming a text that is neither.
    """
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    text = value.strip()
    if not text.endswith("%") or not text[:-1].isdigit():
        raise ValueError(f"{value!r}: want a number or a percentage such as 25%")
    share = int(text[:-1]) * total
    return -(-share // 100) if is_up else share // 100
