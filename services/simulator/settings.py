"""kube-scheduler-simulator's own configuration file, and what `keplab up` makes of it. Pure but for reading the file.

Source: simulator 3; kubernetes-sigs/kube-scheduler-simulator, `simulator/config/v1alpha1/types.go`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from services.api.documents import yaml_text
from services.api.errors import BadRequest
from services.api.selectors import parse_label_selector

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
PORT_MAX: Final = 65535


class SettingsError(ValueError):
    """A file that cannot be used; one line that names the field and what it says."""


@dataclass(frozen=True)
class Settings:
    """What the file asks for; `""`, 0 and () for what it does not say. `import_selector`: of what is imported."""

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
    """Return what the file says. Raises: SettingsError naming the file, the field and the value."""
    try:
        found = yaml_text.load(path.read_text(encoding="utf-8"))
        return _settings(found)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None


def _settings(found: Any) -> Settings:
    if not isinstance(found, dict):
        raise ValueError(f"want a {KIND}, not {type(found).__name__}")
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if found.get(name) != wanted:
            raise ValueError(f"{name} {found.get(name)!r}: want {wanted}")
    if unknown := [name for name in found if name not in (*_TEXTS, *_FLAGS, *_OTHERS)]:
        raise ValueError(
            f"{unknown[0]}: no field of a {KIND}; there are {', '.join(sorted((*_TEXTS, *_FLAGS, *_OTHERS)))}"
        )
    for name in _TEXTS:
        if not isinstance(found.get(name) or "", str):
            raise ValueError(f"{name} {found[name]!r}: want a text")
    for name in _FLAGS:
        if not isinstance(found.get(name) or False, bool):
            raise ValueError(f"{name} {found[name]!r}: want true or false")
    modes = [name for name in IMPORTS if found.get(name)]
    if len(modes) > 1:
        raise ValueError(f"{modes[0]} and {modes[1]} cannot be used simultaneously")
    if modes and modes[0] != "replayEnabled" and not found.get("kubeConfig"):
        raise ValueError(f"{modes[0]} needs kubeConfig, the cluster that is read")
    if found.get("replayEnabled") and not found.get("recordFilePath"):
        raise ValueError("replayEnabled needs recordFilePath, the record that is replayed")
    source = str(found.get("kubeConfig") or "")
    return Settings(
        port=_port(found.get("port") or 0),
        etcd_url=str(found.get("etcdURL") or ""),
        cors_origins=_origins(found.get("corsAllowedOriginList") or []),
        scheduler_config=str(found.get("kubeSchedulerConfigPath") or ""),
        has_own_scheduler=not found.get("externalSchedulerEnabled"),
        import_kubeconfig=source if found.get("externalImportEnabled") else "",
        import_selector=_selector(found.get("resourceImportLabelSelector") or {}),
        sync_kubeconfig=source if found.get("resourceSyncEnabled") else "",
        replay_file=str(found.get("recordFilePath") or "") if found.get("replayEnabled") else "",
    )


def _port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PORT_MAX:
        raise ValueError(f"port {value!r}: want a port up to {PORT_MAX}")
    return value


def _origins(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"corsAllowedOriginList {value!r}: want a list of origins")
    for each in value:
        parts = urlsplit(each) if isinstance(each, str) else None
        if parts is None or not (parts.scheme and parts.netloc):
            raise ValueError(f"corsAllowedOriginList {each!r}: want an origin such as http://localhost:3000")
    return tuple(each.rstrip("/") for each in value)


def _selector(value: Any) -> str:
    """Return a LabelSelector as a selector's text."""
    if not isinstance(value, dict) or set(value) - {"matchLabels", "matchExpressions"}:
        raise ValueError(f"resourceImportLabelSelector {value!r}: want matchLabels or matchExpressions")
    terms = [f"{key}={each}" for key, each in (value.get("matchLabels") or {}).items()]
    for each in value.get("matchExpressions") or ():
        key, operator, values = each.get("key"), each.get("operator"), ",".join(each.get("values") or ())
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": f"{key}",
            "DoesNotExist": f"!{key}",
        }.get(str(operator))
        if not key or text is None:
            raise ValueError(f"resourceImportLabelSelector {each!r}: want key, operator and values")
        terms.append(text)
    text = ",".join(terms)
    try:
        parse_label_selector(text)
    except BadRequest as error:
        raise ValueError(f"resourceImportLabelSelector: {error.message}") from None
    return text
