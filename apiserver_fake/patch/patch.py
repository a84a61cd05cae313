"""The three kinds of patch: JSON merge (RFC 7386), JSON patch (RFC 6902) and strategic merge.

None of them changes what it is given. Results share every part that the patch did not touch with the
document they came from, because copying whole trees was the costliest thing a write did.
"""

from __future__ import annotations

from typing import Any

from apiserver_fake.patch.errors import type_name, unprocessable
from apiserver_fake.patch.json_patch import json_patch
from apiserver_fake.patch.strategic_merge import strategic_merge_patch
from apiserver_fake.schema.schemas import shape_of
from services.api.errors import BadRequest, UnsupportedMediaType
from services.api.meta import Document


def apply_patch(document: Document, patch: Any, patch_type: str, api_version: str, kind: str) -> Document:
    """Return `document` patched.

    `patch_type`: merge, strategic or json. Raises: BadRequest for a patch of the wrong form, Invalid
    (422) for one that cannot be applied, RequestEntityTooLarge, UnsupportedMediaType.
    """
    if patch_type == "json":
        result = json_patch(document, patch)
    elif patch_type in ("merge", "strategic"):
        if not isinstance(patch, dict):
            raise BadRequest(f"a {patch_type} patch must be a JSON object, not {type_name(patch)}")
        if patch_type == "merge":
            result = merge_patch(document, patch)
        else:
            result = strategic_merge_patch(document, patch, shape_of(api_version, kind))
    else:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, "
            "application/apply-patch+yaml"
        )
    if not isinstance(result, dict):
        raise unprocessable(f"the patched {kind} is {type_name(result)}, not an object")
    return result


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` with RFC 7386's merge applied: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merge_patch(result.get(name), value)
        else:
            result[name] = value
    return result
