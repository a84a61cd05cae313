"""Token files say who may be whom, are for their owner's eyes, and outlive a restart of the mesh."""

import json
import random
import stat

import pytest

from services.api.identity import Hosting, Identity
from services.runtime import credentials
from services.runtime.roles import claim_controller_identities, controller_identities


def make(directory, hosts=("h0",), seed=1, others=()):
    hosts = {host: Hosting(frozenset((f"{host}-node",))) for host in hosts}
    return credentials.make(directory, hosts=hosts, random=random.Random(seed), others=others)


def content(path):
    return json.loads(path.read_text())


def test_every_process_gets_its_identities_and_the_server_knows_them_all(tmp_path):
    made = make(tmp_path)
    known = {t["token"]: (t["user"], t["groups"]) for t in content(made.server)["tokens"]}

    controllers = [identity.user for identity in controller_identities()]
    assert ["system:kube-controller-manager", *controllers] == list(content(made.of("controllers")))
    claims = [identity.user for identity in claim_controller_identities()]
    assert ["system:claim-controller", *claims] == list(content(made.of("claim-controller")))
    host = content(made.of("kubelet/h0"))
    assert ("system:node-host:h0", ["system:node-hosts"]) == known[host["system:node-host:h0"]]
    assert ("system:mesh-admin", ["system:mesh-admins"]) == known[made.admin_token]
    assert ("system:monitor", []) == known[(tmp_path / "monitor.token").read_text()]
    assert ("keplab:ui", []) == known[content(made.of("ui"))["keplab:ui"]]
    assert 7 + len(controllers) + len(claims) == len(known)


def test_only_their_owner_may_read_token_files(tmp_path):
    made = make(tmp_path / "credentials")

    assert {0o400} == {stat.S_IMODE(path.stat().st_mode) for path in made.directory.iterdir()}
    assert 0o700 == stat.S_IMODE(made.directory.stat().st_mode)


def test_tokens_and_key_stay_when_the_mesh_comes_back_larger(tmp_path):
    before = make(tmp_path)
    key = content(before.server)["node_key"]

    after = make(tmp_path, hosts=("h0", "h1"), seed=2)

    assert (before.admin_token, key) == (after.admin_token, content(after.server)["node_key"])
    assert content(after.of("kubelet/h0")) != content(after.of("kubelet/h1"))


def test_decision_0039_a_hosts_entry_names_its_nodes_and_one_that_is_not_started_any_more_has_none(tmp_path):
    def nodes_of(made):
        return {t["user"]: t["nodes"] for t in content(made.server)["tokens"] if "node-host" in t["user"]}

    assert nodes_of(make(tmp_path, hosts=("h0", "h1"))) == {
        "system:node-host:h0": ["h0-node"],
        "system:node-host:h1": ["h1-node"],
    }
    assert nodes_of(make(tmp_path)) == {"system:node-host:h0": ["h0-node"], "system:node-host:h1": []}


def test_a_user_gets_a_token_and_an_unknown_one_is_named(tmp_path):
    made = make(tmp_path, others=[Identity("user:ada")])

    assert credentials.token_of(made, "user:ada") != made.admin_token
    with pytest.raises(KeyError, match="no token for user:bob"):
        credentials.token_of(made, "user:bob")
