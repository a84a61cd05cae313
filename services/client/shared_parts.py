"""Sharing of equal parts between views, for objects that are kept for long and change no more.

A decoded view has texts of its own, though nearly all of them are in every other object of the kind, too: names of
conditions, of resources, of taints. A pod that has ended keeps a third of its view's memory once they are shared.
"""

from typing import Any, Final

import msgspec

SHARED_MAX: Final = 4096
"""Number of texts, and of mappings, after which all are forgotten: those that come again are soon known again."""
_texts: dict[str, str] = {}
_mappings: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}


def share_parts(view: msgspec.Struct) -> None:
    """Have a view use texts and mappings of texts that equal ones of earlier views use; it stays equal to what it was.

    Views are frozen: who reads one cannot tell.
    """
    for name in view.__struct_fields__:
        value: Any = getattr(view, name)
        kind = type(value)
        if kind is str:
            if value:
                msgspec.structs.force_setattr(view, name, _shared_text(value))
        elif kind is tuple:
            if value and type(value[0]) is str:
                msgspec.structs.force_setattr(view, name, tuple(map(_shared_text, value)))
            else:
                for member in value:
                    if isinstance(member, msgspec.Struct):
                        share_parts(member)
        elif kind is dict:
            if set(map(type, value.values())) <= {str}:
                msgspec.structs.force_setattr(view, name, _shared_mapping(value))
        elif isinstance(value, msgspec.Struct):
            share_parts(value)


def _shared_text(text: str) -> str:
    known = _texts.get(text)
    if known is not None:
        return known
    if len(_texts) >= SHARED_MAX:
        _texts.clear()
    _texts[text] = text
    return text


def _shared_mapping(mapping: dict[str, str]) -> dict[str, str]:
    key = tuple(mapping.items())
    known = _mappings.get(key)
    if known is not None:
        return known
    if len(_mappings) >= SHARED_MAX:
        _mappings.clear()
    _mappings[key] = mapping
    return mapping
