"""Rules of environment variables, and of pod fields from which variables and files take their values.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `ValidateEnv`, `ValidateEnvFrom`,
`validateObjectFieldSelector`, `validateContainerResourceFieldSelector`; upstream
`pkg/apis/core/pods/helpers.go`; KEP-3721 for variables from files, KEP-4369 for their names.
"""

from collections.abc import Sequence

from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Causes,
    config_key,
    invalid,
    label,
    not_supported,
    prefix_of,
    qualified_name,
    required,
    subdomain,
    unknown,
    variable_name,
)
from apiserver_fake.registry.validation.pod.paths import no_backsteps
from apiserver_fake.registry.validation.pod.scope import containers
from services.api.meta import Document
from services.api.quantity import canonical

VARIABLE_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_READABLE = frozenset(
    (*VARIABLE_FIELDS, *FILE_FIELDS, "spec.host", "spec.restartPolicy", "spec.schedulerName", "status.phase")
)
_SUBSCRIPTED = ("metadata.annotations", "metadata.labels")
RESOURCES = tuple(
    f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SIZES_TEXT = f"only divisor's values {', '.join(_SIZES)} are supported with the"
_DIVISORS = {
    "cpu": (("1m", "1"), "only divisor's values 1m and 1 are supported with the cpu resource"),
    "memory": (_SIZES, f"{_SIZES_TEXT} memory resource"),
    "ephemeral-storage": (_SIZES, f"{_SIZES_TEXT} local ephemeral storage resource"),
    "hugepages": (_SIZES, f"{_SIZES_TEXT} hugepages resource"),
}


def _field(fields: Sequence[str]) -> Check:
    def check(selector: Document, at: str, report: Report) -> Causes:
        version, name = selector.get("apiVersion") or "", selector.get("fieldPath") or ""
        if not version:
            yield required(f"{at}apiVersion")
            return
        if not name:
            yield required(f"{at}fieldPath")
            return
        owner, bracket, subscript = name.removesuffix("']").partition("['")
        is_subscripted = bool(owner and bracket and name.endswith("']"))
        problem = ""
        if version != "v1":
            problem = f"unsupported pod version: {version}"
        elif is_subscripted and owner not in _SUBSCRIPTED:
            problem = f"field label does not support subscript: {name}"
        elif not is_subscripted and name not in _READABLE:
            problem = f"field label not supported: {name}"
        if problem:
            yield invalid(f"{at}fieldPath", name, f"error converting fieldPath: {problem}")
        elif is_subscripted:
            yield from qualified_name(at[:-1], subscript.lower() if owner == "metadata.annotations" else subscript)
        else:
            field_path = "spec.nodeName" if name == "spec.host" else name
            if field_path not in fields:
                yield not_supported(f"{at}fieldPath", field_path, fields)

    return check


def field_of(fields: Sequence[str]) -> Struct:
    """Return the table of a selector of one of these fields of the pod."""
    return Struct(Field("apiVersion", default="v1"), _field(fields))


def resource_of(*, is_named: bool) -> Struct:
    """Return the table of a selector of a container's limit or request; `is_named`: the selector names the
    container.
    """

    def check(selector: Document, at: str, report: Report) -> Causes:
        name = selector.get("resource") or ""
        if is_named and not selector.get("containerName"):
            yield required(f"{at}containerName")
        elif not name:
            yield required(f"{at}resource")
        elif name not in RESOURCES and not name.startswith(_HUGE_PAGES):
            yield not_supported(f"{at}resource", name, RESOURCES)
        divisor = canonical(selector.get("divisor") or "0")
        kind = "hugepages" if name.startswith(_HUGE_PAGES) else name.partition(".")[2] if name in RESOURCES else ""
        if divisor != "0" and kind:
            allowed, text = _DIVISORS[kind]
            if divisor not in allowed:
                yield invalid(f"{at}divisor", name, text)

    return Struct(check)


_KEY = Field("key", required=True, form=config_key)
_SOURCES = (
    Field("fieldRef", struct=field_of(VARIABLE_FIELDS)),
    Field("resourceFieldRef", struct=resource_of(is_named=False)),
    Field("configMapKeyRef", struct=Struct(Field("name", missing="", form=subdomain), _KEY)),
    Field("secretKeyRef", struct=Struct(Field("name", missing="", form=subdomain), _KEY)),
    Field(
        "fileKeyRef",
        struct=Struct(
            Field("key", required=True, form=variable_name),
            Field("volumeName", required=True, form=label),
            Field("path", required=True, form=no_backsteps),
        ),
    ),
)
_SOURCES_TEXT = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
_ONE_TEXT = "may not have more than one field specified at a time"


def _one_source(variable: Document, at: str, report: Report) -> Causes:
    sources = variable.get("valueFrom")
    if sources is None:
        return
    source_count = sum(1 for field in _SOURCES if sources.get(field.name) is not None)
    if not source_count:
        yield invalid(f"{at}valueFrom", "", _SOURCES_TEXT)
    elif variable.get("value"):
        yield invalid(f"{at}valueFrom", "", "may not be specified when `value` is not empty")
    elif source_count > 1:
        yield invalid(f"{at}valueFrom", "", _ONE_TEXT)


VARIABLE = Struct(
    Field("name", required=True, form=variable_name), Field("valueFrom", struct=Struct(*_SOURCES)), _one_source
)
_MAP = Struct(Field("name", required=True, form=prefix_of(subdomain)))


def _one_map(variables: Document, at: str, report: Report) -> Causes:
    found = sum(1 for name in ("configMapRef", "secretRef") if variables.get(name) is not None)
    path = at[: at.rindex("[")]
    if not found:
        yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
    elif found > 1:
        yield invalid(path, "", _ONE_TEXT)


VARIABLES = Struct(
    Field("prefix", form=variable_name), Field("configMapRef", struct=_MAP), Field("secretRef", struct=_MAP), _one_map
)


def files_are_in_empty_dirs(spec: Document, at: str, report: Report) -> Causes:
    """Check that files from which variables are read are in emptyDir volumes."""
    sources: dict[str, Document] = {}
    for path, container in containers(spec, at):
        for index, variable in enumerate(container.get("env") or ()):
            selector = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if selector is None:
                continue
            sources = sources or {each.get("name") or "": each for each in spec.get("volumes") or ()}
            name, here = selector.get("volumeName") or "", f"{path}env[{index}].valueFrom.fileKeyRef.volumeName"
            if name not in sources:
                yield unknown(here, name)
            elif sources[name].get("emptyDir") is None:
                yield invalid(here, name, "referenced volume must be of type emptyDir")
