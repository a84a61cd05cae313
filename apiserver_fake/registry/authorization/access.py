"""Access of clients from outside: authorization mode, service accounts, and certificate authority."""

from dataclasses import dataclass

from apiserver_fake.registry.accounts import NO_ACCOUNTS, ServiceAccounts


@dataclass(frozen=True)
class Access:
    """Access settings of a server. `is_rbac`: RBAC objects authorize callers of the REST endpoint, besides the
    mesh's roles.

    `authority`: PEM of the authority that signs certificates of clients and of this server; "" for none.
    """

    is_rbac: bool = False
    accounts: ServiceAccounts = NO_ACCOUNTS
    authority: str = ""
