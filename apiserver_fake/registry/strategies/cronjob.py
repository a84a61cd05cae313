"""CronJobs: a valid schedule, an existing time zone, and a job to create (batch/v1).

The texts are upstream's (`pkg/apis/batch/validation`).
"""

import re

from apiserver_fake.registry.strategies.job import JOB_TEMPLATE_SPEC
from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import Causes, invalid, required
from services.api.cron import parse
from services.api.meta import Document
from services.api.times import zone_of

NAME_MAX = 52
"""Most characters of a CronJob's name. A job's name has at most 63 and ends with a hyphen and the minutes
since the epoch.
"""
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


def _stored_spec(report: Report) -> Document:
    return (report.update[0].get("spec") or {}) if report.update is not None else {}


def _schedule(spec: Document, at: str, report: Report) -> Causes:
    """Check that the schedule can be read; one that names its zone may stay."""
    text, path = spec.get("schedule") or "", f"{at}schedule"
    if not text:
        yield required(path)
        return
    try:
        parse(text)
    except ValueError as error:
        yield invalid(path, text, str(error))
    if "TZ" not in text:
        return
    if "TZ" not in (_stored_spec(report).get("schedule") or ""):
        yield invalid(path, text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif spec.get("timeZone") is not None:
        yield invalid(path, text, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _zone(name: str, path: str, report: Report) -> Causes:
    """Check that there is such a zone, unless it is the stored one."""
    if _stored_spec(report).get("timeZone") == name:
        return
    if not name:
        yield invalid(path, name, "timeZone must be nil or non-empty string")
        return
    parts = name.split("/")
    if any(part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part) for part in parts):
        yield invalid(path, name, f"unknown time zone {name}")
        return
    if name.lower() == "local":
        yield invalid(
            path, name, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    try:
        zone_of(name)
    except ValueError as error:
        yield invalid(path, name, str(error))


SPEC = Struct(
    _schedule,
    Field("startingDeadlineSeconds", minimum=0),
    Field("timeZone", rule=_zone),
    Field("concurrencyPolicy", default="Allow", is_blank_absent=True, enum=("Allow", "Forbid", "Replace")),
    Field("suspend", default=False),
    Field("jobTemplate", missing={}, struct=Struct(Field("spec", missing={}, struct=JOB_TEMPLATE_SPEC))),
    Field("successfulJobsHistoryLimit", default=3, minimum=0),
    Field("failedJobsHistoryLimit", default=1, minimum=0),
)


def _rules(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    name = new["metadata"].get("name") or ""
    if old is None and len(name) > NAME_MAX:
        yield invalid("metadata.name", name, f"must be no more than {NAME_MAX} characters")


STRATEGIES = {
    "cronjobs.batch": declare_strategy(Struct(Field("spec", default={}, struct=SPEC)), has_status=True, rules=_rules)
}
