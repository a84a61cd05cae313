"""How a server treats clients from outside: by which rules, as which accounts."""

from dataclasses import dataclass

from apiserver_fake.registry.accounts import NO_ACCOUNTS, ServiceAccounts


@dataclass(frozen=True)
class Access:
    """`is_rbac`: callers of the REST endpoint are authorized by RBAC objects besides the mesh's own roles.
    `authority`: PEM of the authority that signs certificates of clients and of this server; "" for none."""

    is_rbac: bool = False
    accounts: ServiceAccounts = NO_ACCOUNTS
    authority: str = ""
