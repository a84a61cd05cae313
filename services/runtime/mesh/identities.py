"""Identities of the processes of a mesh: tokens, certificates, and the flags that name both.

Source: guarantees 8.1.
"""

from collections.abc import Sequence
from pathlib import Path

from services.api.identity import ADMIN, SERVICE_ACCOUNT_PREFIX, Identity
from services.api.seams import Clock
from services.client.rpc import RpcTransport
from services.client.tls import ClientTls, TlsFiles
from services.runtime import certificates, credentials
from services.runtime.components import API_SERVER_AS_CLIENT
from services.runtime.config import MeshError
from services.runtime.mesh.hosts import hosting
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import seeded_random
from services.runtime.roles import read_role


class MeshIdentities:
    """Credentials and certificates below one data directory. Existing ones are kept, missing ones are made.

    `token_files`: paths of token files by user, for controllers that are not part of keplab.
    """

    def __init__(self, data: Path, options: MeshOptions) -> None:
        """Raises: MeshError for a role that cannot be read; OSError."""
        self._options = options
        try:
            users = [read_role(path).user for path in options.roles]
        except ValueError as error:
            raise MeshError(str(error)) from None
        self.folder = data / credentials.FOLDER
        others = (*options.identities, *map(Identity, users))
        self.credentials = credentials.make(
            self.folder, hosts=hosting(options), random=seeded_random(None), others=others
        )
        self.authority = certificates.authority(self.folder, life=options.certificate_life)
        self.serving = self.authority.server("apiserver")
        self.kubelet_serving = self.authority.server("kubelet")
        self.kubelet_client = self.authority.client("apiserver-kubelet-client", API_SERVER_AS_CLIENT)
        self.token_files: dict[str, str] = {}
        for user in users:
            process = user.removeprefix(SERVICE_ACCOUNT_PREFIX).replace(":", "_")
            self.token_files[user] = str(credentials.put(self.credentials, process, user))

    def flags_of(self, process: str) -> list[str]:
        """Return the flags with the credentials of a process."""
        return ["--token-file", str(self.credentials.of(process)), *self._connection(process)]

    def driver_flags(self, process: str, driver: str, node: str) -> list[str]:
        """Return the flags with the credentials of a DRA driver's process; its token is bound to the node."""
        token_file = credentials.put_driver(self.credentials, process, driver, node)
        return ["--token-file", str(token_file), *self._connection(process, credentials.driver_host(process))]

    def kubeconfig(self, rest_urls: Sequence[str]) -> bytes:
        """Return the administrator's kubeconfig for the REST servers at these URLs, https://HOST:PORT."""
        return credentials.kubeconfig(rest_urls, self.credentials.admin_token, self.authority.path)

    def transport(self, identity: str, servers: str, clock: Clock) -> RpcTransport:
        """Return a new connection as one identity, "" for the administrator. `servers`: HOST:PORT, comma-separated.

        Raises: KeyError when this mesh has no token for that identity.
        """
        identity = identity or ADMIN.user
        tokens = {identity: credentials.token_of(self.credentials, identity)}
        tls = None
        if self._options.security == "strict":
            tls = ClientTls(TlsFiles(*self._client_pair("admin", ADMIN), self.authority.path))
        return RpcTransport(servers, tokens, clock=clock, random=seeded_random(None), tls=tls)

    def _client_pair(self, process: str, identity: Identity) -> tuple[Path, Path]:
        """Return certificate and key of a process."""
        pair = credentials.client_pair(self.authority, process, identity)
        return pair.certificate, pair.key

    def _connection(self, process: str, identity: Identity | None = None) -> list[str]:
        """Return a process's flags for mutual TLS; none unless the mesh's security profile is `strict`.

        `identity`: the identity in its certificate; None for the process's own.
        """
        if self._options.security != "strict":
            return []
        certificate, key = self._client_pair(process, identity or self.credentials.users[process])
        return [
            "--security", "strict",
            "--client-certificate", str(certificate),
            "--client-key", str(key),
            "--certificate-authority", str(self.authority.path),
        ]  # fmt: skip
