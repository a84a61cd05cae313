"""Strategies made from tables of field rules: what most kinds need, and where a kind adds its own.

Source: upstream's declarative validation (KEP-5073) and the strategies in `pkg/registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apiserver_fake.strategy import Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.fields import Form, Report, Struct
from apiserver_fake.validation.formats import Cause, Causes, metadata, subdomain
from services.api.meta import Document

Creation = Callable[[Document, WriteContext], None]
Update = Callable[[Document, Document, WriteContext], None]
Rules = Callable[[Document, Document, WriteContext], Causes]


def declared(
    fields: Struct,
    *,
    name: Form = subdomain,
    has_status: bool = False,
    before_create: Creation | None = None,
    before_update: Update | None = None,
    on_create: Creation | None = None,
    on_update: Update | None = None,
    rules: Callable[[Document | None, Document, WriteContext], Causes] | None = None,
    update_rules: Rules | None = None,
    update_rules_need_valid: bool = False,
    status: Struct | None = None,
    status_rules: Rules | None = None,
    **others: Any,
) -> Strategy:
    """Return the strategy of a kind whose document `fields` describes.

    `name`: the form of its names. `has_status`: the status belongs to its subresource; `status` is the table of what a
    write of it may say. `before_create` and `before_update` run before the defaults, `on_create` and `on_update` after
    them. `rules`, `update_rules` and `status_rules` are those that need the stored object or other objects; with
    `update_rules_need_valid` only for what the table found nothing wrong with. A spec that did not change is not looked
    at again, one that may not change is only compared. `others`: further parts of the strategy.
    """
    is_spec_fixed = any(field.name == "spec" and field.is_immutable for field in fields.fields)
    is_completing = fields.is_completing

    def prepare_create(new: Document, ctx: WriteContext) -> None:
        if before_create is not None:
            before_create(new, ctx)
        fields.complete_in_place(new)
        if has_status:
            drop_status(new, ctx)
        if on_create is not None:
            on_create(new, ctx)

    def prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
        if has_status:
            keep_status(old, new, ctx)
        if before_update is not None:
            before_update(old, new, ctx)
        if is_completing and ("spec" not in new or new["spec"] is not old.get("spec")):
            fields.complete_in_place(new)
        if on_update is not None:
            on_update(old, new, ctx)

    def validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
        causes = [*metadata(new, name)]
        if old is not None and "spec" in new and new["spec"] is old.get("spec"):
            return causes
        report = Report(ctx.switches, causes)
        if old is None or not is_spec_fixed:
            fields.check(new, "", report)
        if old is not None:
            fields.unchanged(old, new, "", report)
        if rules is not None:
            causes += rules(old, new, ctx)
        if update_rules is not None and old is not None and not (update_rules_need_valid and causes):
            causes += update_rules(old, new, ctx)
        return causes

    def validate_status(old: Document, new: Document, ctx: WriteContext) -> list[Cause]:
        report = Report()
        if status is not None:
            status.check(new.get("status") or {}, "status.", report)
        if status_rules is not None:
            report.causes += status_rules(old, new, ctx)
        return report.causes

    if status is not None or status_rules is not None:
        others.setdefault("validate_status", validate_status)
    return Strategy(
        prepare_create=prepare_create, prepare_update=prepare_update, validate=validate, fields=fields, **others
    )
