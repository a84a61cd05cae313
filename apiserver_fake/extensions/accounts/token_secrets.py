"""Secrets of the type `kubernetes.io/service-account-token`: filled with a token of their account, deleted
with it.

In upstream this is a controller of the controller manager, which has the signing key and reads secrets. Here
neither leaves the API server (decision 0031). The keeper wakes on commits and writes through the server like
any client. Source: upstream `pkg/controller/serviceaccount/tokens_controller.go`.
"""

import asyncio
import base64
from collections.abc import Callable, Iterable

import msgspec
import structlog

from apiserver_fake.registry.accounts import ACCOUNT_NAME, ACCOUNT_UID, LEGACY_TYPE, Find, Tokens
from services.api.meta import Document
from services.api.wire import Api, Request

log = structlog.get_logger()
Key = tuple[str, str]
Listing = Callable[[str], Iterable[Document]]
"""Function that returns the service account token secrets of a namespace."""
AGAIN_S = 1.0


def complete_token_secret(
    secret: Document, account: Document | None, tokens: Tokens, authority: str
) -> Document | None:
    """Return the secret as it must be: the same object if it needs no change, None if its account does not exist."""
    meta = secret["metadata"]
    account_uid = (meta.get("annotations") or {}).get(ACCOUNT_UID)
    if account is None or (account_uid and account_uid != account["metadata"]["uid"]):
        return None
    data = secret.get("data") or {}
    needed = {"ca.crt": _base64_text(authority), "namespace": _base64_text(meta["namespace"])}
    if not data.get("token"):
        needed["token"] = _base64_text(tokens.legacy(account, secret))
    annotations = {**(meta.get("annotations") or {}), ACCOUNT_UID: account["metadata"]["uid"]}
    new = {**secret, "metadata": {**meta, "annotations": annotations}, "data": {**data, **needed}}
    return secret if new == secret else new


def _base64_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class SecretKeeper:
    """Fills and deletes service account token secrets.

    `note_secret` and `note_account` are called with changes; `run` runs with the server.
    """

    def __init__(self, tokens: Tokens, authority: str, find: Find, listing: Listing, api: Callable[[], Api]) -> None:
        self._tokens, self._authority, self._find, self._listing, self._api = tokens, authority, find, listing, api
        self._due: dict[Key, None] = {}
        self._woken = asyncio.Event()

    def note_secret(self, namespace: str, name: str) -> None:
        """Queue a service account token secret for another check."""
        self._due[namespace, name] = None
        self._woken.set()

    def change_authority(self, authority: str) -> None:
        """Replace the certificate authority in all of these secrets."""
        self._authority = authority
        for secret in self._listing(""):
            self.note_secret(secret["metadata"]["namespace"], secret["metadata"]["name"])

    def note_account(self, namespace: str, name: str) -> None:
        """Queue the secrets of an account that was created or deleted for another check."""
        for secret in self._listing(namespace):
            if (secret["metadata"].get("annotations") or {}).get(ACCOUNT_NAME) == name:
                self.note_secret(namespace, secret["metadata"]["name"])

    async def run(self) -> None:
        """Process the queue until cancelled."""
        self.change_authority(self._authority)
        while True:
            await self._woken.wait()
            self._woken.clear()
            for key in list(self._due):
                del self._due[key]
                if not await self._keep(*key):
                    self._due[key] = None
            if self._due and not self._woken.is_set():
                await asyncio.sleep(AGAIN_S)
                self._woken.set()

    async def _keep(self, namespace: str, name: str) -> bool:
        """Bring one secret about; whether it need not be tried again."""
        secret = self._find("secrets", namespace, name)
        if secret is None or secret.get("type") != LEGACY_TYPE or secret["metadata"].get("deletionTimestamp"):
            return True
        meta = secret["metadata"]
        of = (meta.get("annotations") or {}).get(ACCOUNT_NAME, "")
        new = complete_token_secret(secret, self._find("serviceaccounts", namespace, of), self._tokens, self._authority)
        if new is secret:
            return True
        request = Request(verb="delete", resource="secrets", namespace=namespace, name=name, uid=meta["uid"])
        if new is not None:
            request = msgspec.structs.replace(request, verb="update", uid="", body=msgspec.json.encode(new))
        response = await self._api().call(request)
        if response.is_ok or response.code == 404:
            return True
        if response.code != 409:  # changed meanwhile, perhaps by another API server that does the same
            log.warning("token_secret.not_kept", namespace=namespace, code=response.code)
        return False
