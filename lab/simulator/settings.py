"""kube-scheduler-simulator's own configuration file, as settings for `keplab up`. Pure but for reading the
file.

Source: simulator 3; kubernetes-sigs/kube-scheduler-simulator, `simulator/config/v1alpha1/types.go`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from services.api.documents import yaml_text
from services.api.errors import BadRequest
from services.api.meta import LabelSelector
from services.api.selectors import parse_label_selector, selector_text

API_VERSION: Final = "kube-scheduler-simulator-config/v1alpha1"
KIND: Final = "SimulatorConfiguration"
IMPORTS: Final = ("externalImportEnabled", "resourceSyncEnabled", "replayEnabled")
_TEXTS: Final = (
    "etcdURL",
    "kubeConfig",
    "kubeApiServerUrl",
    "kubeApiHost",
    "kubeSchedulerConfigPath",
    "recordFilePath",
)
_FLAGS: Final = (*IMPORTS, "externalSchedulerEnabled")
_OTHERS: Final = ("apiVersion", "kind", "port", "kubeApiPort", "corsAllowedOriginList", "resourceImportLabelSelector")
_NEEDS_VALUES: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
PORT_MAX: Final = 65535


class SettingsError(ValueError):
    """A file that cannot be used; one line that names the field and its value."""


@dataclass(frozen=True)
class Settings:
    """Settings from the file; `""`, 0 and () for missing ones. `import_selector`: label selector of imported
    objects.
    """

    port: int = 0
    etcd_url: str = ""
    cors_origins: tuple[str, ...] = ()
    scheduler_config: str = ""
    has_own_scheduler: bool = True
    import_kubeconfig: str = ""
    import_selector: str = ""
    sync_kubeconfig: str = ""
    replay_file: str = ""


def read_settings(path: Path) -> Settings:
    """Read the settings from the file. Raises: SettingsError naming the file, the field and the value."""
    try:
        document = yaml_text.load(path.read_text(encoding="utf-8"))
        return _settings(document)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None


def _settings(document: Any) -> Settings:
    if not isinstance(document, dict):
        raise ValueError(f"want a {KIND}, not {type(document).__name__}")
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(name) != wanted:
            raise ValueError(f"{name} {document.get(name)!r}: want {wanted}")
    if unknown := [name for name in document if name not in (*_TEXTS, *_FLAGS, *_OTHERS)]:
        raise ValueError(
            f"{unknown[0]}: no field of a {KIND}; there are {', '.join(sorted((*_TEXTS, *_FLAGS, *_OTHERS)))}"
        )
    for name in _TEXTS:
        if not isinstance(document.get(name) or "", str):
            raise ValueError(f"{name} {document[name]!r}: want a text")
    for name in _FLAGS:
        if not isinstance(document.get(name) or False, bool):
            raise ValueError(f"{name} {document[name]!r}: want true or false")
    modes = [name for name in IMPORTS if document.get(name)]
    if len(modes) > 1:
        raise ValueError(f"{modes[0]} and {modes[1]} cannot be used simultaneously")
    if modes and modes[0] != "replayEnabled" and not document.get("kubeConfig"):
        raise ValueError(f"{modes[0]} needs kubeConfig, the cluster that is read")
    if document.get("replayEnabled") and not document.get("recordFilePath"):
        raise ValueError("replayEnabled needs recordFilePath, the record that is replayed")
    source = str(document.get("kubeConfig") or "")
    return Settings(
        port=_port(document.get("port") or 0),
        etcd_url=str(document.get("etcdURL") or ""),
        cors_origins=_origins(document.get("corsAllowedOriginList") or []),
        scheduler_config=str(document.get("kubeSchedulerConfigPath") or ""),
        has_own_scheduler=not document.get("externalSchedulerEnabled"),
        import_kubeconfig=source if document.get("externalImportEnabled") else "",
        import_selector=_selector(document.get("resourceImportLabelSelector") or {}),
        sync_kubeconfig=source if document.get("resourceSyncEnabled") else "",
        replay_file=str(document.get("recordFilePath") or "") if document.get("replayEnabled") else "",
    )


def _port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PORT_MAX:
        raise ValueError(f"port {value!r}: want a port up to {PORT_MAX}")
    return value


def _origins(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"corsAllowedOriginList {value!r}: want a list of origins")
    for each in value:
        if not (isinstance(each, str) and _is_origin(each)):
            raise ValueError(f"corsAllowedOriginList {each!r}: want an origin such as http://localhost:3000")
    return tuple(each.rstrip("/") for each in value)


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets that are no IPv6 address
        return False
    return bool(parts.scheme and parts.netloc)


def _selector(value: Any) -> str:
    """Return a LabelSelector as a selector's text; each requirement is one that `labels.NewRequirement` makes."""
    name = "resourceImportLabelSelector"
    if not isinstance(value, dict) or set(value) - {"matchLabels", "matchExpressions"}:
        raise ValueError(f"{name} {value!r}: want matchLabels or matchExpressions")
    try:
        selector = msgspec.convert({key: each for key, each in value.items() if each is not None}, LabelSelector)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        raise ValueError(f"{name}{at.rstrip('`')}: {what}") from None
    for term in selector.match_expressions:
        if term.operator not in _NEEDS_VALUES:
            raise ValueError(f"{name}: operator {term.operator!r} of {term.key!r}: want {', '.join(_NEEDS_VALUES)}")
        if bool(term.values) != _NEEDS_VALUES[term.operator]:
            wanted = "at least one" if _NEEDS_VALUES[term.operator] else "none"
            raise ValueError(f"{name}: values {list(term.values)} of {term.key!r} {term.operator}: want {wanted}")
    values = (*selector.match_labels.values(), *(each for term in selector.match_expressions for each in term.values))
    if (several := next((each for each in values if "," in each), None)) is not None:
        raise ValueError(f"{name}: invalid label value {several!r}")
    text = selector_text(selector)
    try:
        parse_label_selector(text)
    except BadRequest as error:
        raise ValueError(f"{name}: {error.message}") from None
    return text
