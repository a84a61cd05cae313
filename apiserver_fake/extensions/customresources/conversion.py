"""Validation of `spec.conversion`: how objects of a kind are converted between its versions. Pure.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go,
staging/src/k8s.io/apiserver/pkg/util/webhook/validation.go.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

from cryptography import x509

from apiserver_fake.extensions.customresources.causes import invalid
from apiserver_fake.extensions.customresources.names import dns_label, dns_subdomain, one_of
from apiserver_fake.registry.validation.formats import Causes, forbidden, required
from services.api.meta import Document

_REVIEWS: Final = ("v1", "v1beta1")
_FORM: Final = "; desired format: https://host[/path]"
_URL: Final = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?:(?P<user>[^/?#]*)@)?(?P<host>[^/?#]*))?"
    r"(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?"
)
_BLOCK: Final = re.compile(rb"-----BEGIN ([^-\n]*)-----\r?\n(.*?)\r?\n?-----END \1-----", re.DOTALL)


def is_established(definition: Document) -> bool:
    """Whether the definition has the condition Established, so that clients may have used the kind."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)


def problems(conversion: Document | None, old: Document | None) -> Causes:
    """Yield the errors in a definition's conversion. `old`: the stored definition, on an update."""
    if conversion is None:
        return
    path, webhook = "spec.conversion", conversion.get("webhook") or {}
    strategy = conversion.get("strategy") or ""
    client, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    yield from one_of(f"{path}.strategy", strategy, ("None", "Webhook"))
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if client is not None:
            yield forbidden(f"{path}.webhookClientConfig", text)
        if reviews:
            yield forbidden(f"{path}.conversionReviewVersions", text)
        return
    if client is None:
        yield required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
    else:
        yield from _client(client, f"{path}.webhookClientConfig", old)
    yield from _review_versions(reviews, f"{path}.conversionReviewVersions")


def _review_versions(versions: list[str], path: str) -> Causes:
    if not versions:
        yield required(path)
        return
    for place, version in enumerate(versions):
        if version in versions[:place]:
            yield invalid(f"{path}[{place}]", version, "duplicate version")
        elif wrong := dns_label(version):
            yield invalid(f"{path}[{place}]", version, wrong)
    if not set(versions) & set(_REVIEWS):
        yield invalid(path, versions, f"must include at least one of {', '.join(_REVIEWS)}")


def _client(client: Document, path: str, old: Document | None) -> Causes:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from url_problems(url, f"{path}.url")
    elif service is not None:
        yield from service_problems(service, f"{path}.service")
    bundle = client.get("caBundle")
    if bundle and not _may_be_wrong(old) and (wrong := _no_certificates(bundle)):
        yield invalid(f"{path}.caBundle", bundle, wrong)


def _may_be_wrong(old: Document | None) -> bool:
    """Whether certificates that cannot be read are accepted: before the kind is used, and where they were there."""
    if old is None or not is_established(old):
        return True
    before: Any = ((old.get("spec") or {}).get("conversion") or {}).get("webhook") or {}
    bundle = (before.get("clientConfig") or {}).get("caBundle")
    return bool(bundle and _no_certificates(bundle))


def _no_certificates(bundle: str) -> str:
    """Return why a bundle has no certificate; empty if it has one."""
    try:
        text = base64.b64decode(bundle, validate=True)
    except (binascii.Error, ValueError):
        text = b""
    prefix, blocks = "unable to load root certificates", list(_BLOCK.finditer(text))
    why = ""
    for block in blocks:
        if block[1] != b"CERTIFICATE" or b":" in block[2]:
            continue
        try:
            x509.load_pem_x509_certificate(block[0] + b"\n")
        except ValueError as error:
            why = why or f"failed to parse certificate: {error}"
        else:
            return ""
    if why:
        return f"{prefix}: {why}"
    if blocks and not text[blocks[-1].end() :].strip():
        return f"{prefix}: no valid certificate authority data seen"
    return f"{prefix}: unable to parse bytes as PEM block"


def url_problems(url: str, path: str) -> Causes:
    """Yield the errors in the URL of a webhook."""
    match = _URL.fullmatch(url)
    if match is None or any(ord(sign) < 32 or ord(sign) == 127 for sign in url):
        reason = f'parse "{url}": net/url: invalid control character in URL'
        yield required(path, f"url must be a valid URL: {reason}{_FORM}")
        return
    if (match["scheme"] or "").lower() != "https":
        text = f"'https' is the only allowed URL scheme{_FORM}"
        yield invalid(path, (match["scheme"] or "").lower(), text)
    if not match["host"]:
        yield invalid(path, "", f"host must be specified{_FORM}")
    if match["user"] is not None:
        yield invalid(path, match["user"], "user information is not permitted in the URL")
    if match["fragment"]:
        yield invalid(path, match["fragment"], "fragments are not permitted in the URL")
    if match["query"]:
        yield invalid(path, match["query"], "query parameters are not permitted in the URL")


def service_problems(service: Document, path: str) -> Causes:
    """Yield the errors in the service of a webhook."""
    # Upstream passes name and namespace in each other's place, and so does each error name the other one.
    if not service.get("namespace"):
        yield required(f"{path}.name", "service name is required")
    if not service.get("name"):
        yield required(f"{path}.namespace", "service namespace is required")
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        yield invalid(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    url_path, where = service.get("path") or "/", f"{path}.path"
    if url_path == "/":
        return
    if url_path == "//":
        yield invalid(where, url_path, "segment[0] may not be empty")
        return
    if not url_path.startswith("/"):
        yield invalid(where, url_path, "must start with a '/'")
    for place, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(where, url_path, f"segment[{place}] may not be empty")
        elif wrong := dns_subdomain(step):
            yield invalid(where, url_path, f"segment[{place}]: {wrong}")
