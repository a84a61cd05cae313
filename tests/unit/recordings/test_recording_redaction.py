"""What is secret is in no byte of a recording."""

import base64
import gzip
import zipfile

import msgspec
import pytest

from lab.recordings.format import Meta
from lab.recordings.reader import Recording
from lab.recordings.redaction import may_leak, redact, redacted_text
from lab.recordings.writer import Writer
from tests.unit.recordings.histories import History

PLANTED = "hunter2-planted"
ENCODED = base64.b64encode(PLANTED.encode()).decode()
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJl"


def secret(**fields):
    applied = f'{{"stringData":{{"password":"{PLANTED}"}}}}'
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied, "team": "shop"}
    meta = {"name": "s", "namespace": "shop", "uid": "u", "annotations": annotations}
    return {"metadata": meta, "type": "Opaque", "data": {"password": ENCODED}, **fields}


def test_values_of_a_secret_become_their_size_and_its_keys_stay():
    found = msgspec.json.decode(redact("secrets", msgspec.json.encode(secret(stringData={"more": "abc"}))))

    assert found["data"] == {"password": f"••• {len(PLANTED)} bytes"}
    assert found["stringData"] == {"more": "••• 3 bytes"}
    assert found["metadata"]["annotations"]["team"] == "shop"
    assert PLANTED not in str(found)


def test_what_no_reader_can_make_out_of_a_secret_is_left_out_whole():
    assert redact("secrets", b'{"data": hunter2') == b"{}"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"data": {{"t": "{TOKEN}"}}}}',
        f'{{"message": "Authorization: Bearer {PLANTED}"}}',
        f'{{"message": "Authorization: Basic {ENCODED}"}}',
        f'{{"data": {{"kubeconfig": "users:\\n- user:\\n    token: {PLANTED}\\n"}}}}',
        f'{{"data": {{"kubeconfig": "users:\\n- user:\\n    password: {PLANTED}\\n"}}}}',
        f'{{"data": {{"kubeconfig": "{{\\"users\\": [{{\\"user\\": {{\\"password\\": \\"{PLANTED}\\"}}}}]}}"}}}}',
        f'{{"data": {{"kubeconfig": "    client-key-data: {PLANTED}\\n    name: x\\n"}}}}',
        f'{{"data": {{"kubeconfig": "{{\\"users\\": [{{\\"user\\": {{\\"token\\": \\"{PLANTED}\\"}}}}]}}"}}}}',
        f'{{"data": {{"key": "-----BEGIN RSA PRIVATE KEY-----\\n{PLANTED}\\n-----END RSA PRIVATE KEY-----\\n"}}}}',
    ],
)
def test_tokens_keys_and_kubeconfigs_are_hidden_wherever_they_stand(text):
    found = redacted_text(text.encode())

    assert PLANTED.encode() not in found
    assert ENCODED.encode() not in found
    assert TOKEN.encode() not in found
    assert b"bytes" in found
    msgspec.json.decode(found)
    assert may_leak(b"{}\n" + text.encode() + b"\n{}"), "what is said of many lines holds for each"


KUBECONFIGS = {
    "yaml": "users:\n- user:\n    token: {}\n",
    "yaml with quotes": 'users:\n- user:\n    token: "{}"\n',
    "yaml with apostrophes": "users:\n- user:\n    password: '{}'\n",
    "yaml in one line": "users: [{{user: {{token: {}}}}}]",
    "json": '{{"users": [{{"user": {{"username": "x", "password": "{}"}}}}]}}',
}


@pytest.mark.parametrize("value", [PLANTED, "p@ss!word#planted", "a-planted"])
@pytest.mark.parametrize("kubeconfig", KUBECONFIGS.values(), ids=KUBECONFIGS.keys())
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_kubeconfig_lets_no_one_in_as_it_stands_and_as_apply_noted_it(value, kubeconfig, depth):
    document = {"data": {"config": kubeconfig.format(value)}, "after": "stays"}
    for _ in range(depth):
        text = msgspec.json.encode(document).decode()
        document = {"metadata": {"annotations": {"note": text}}, "after": "stays"}

    found = redacted_text(msgspec.json.encode(document))

    assert value.encode() not in found
    assert f"••• {len(value)} bytes".encode() in found
    assert msgspec.json.decode(found)["after"] == "stays"
    assert redacted_text(found) == found


def test_what_only_looks_like_a_secret_stays_as_it_is():
    text = b'{"kind":"Pod","spec":{"volumes":[{"projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}]}}'

    assert redact("pods", text) is text


@pytest.mark.parametrize("is_open", [True, False])
def test_planted_values_are_in_no_byte_of_the_recording(tmp_path, is_open):
    history, path = History(), tmp_path / "a.keprec"
    history.commit("secrets", secret())
    history.commit("secrets", {**secret(), "type": "kubernetes.io/service-account-token", "data": {"token": ENCODED}})
    history.commit("configmaps", {"metadata": {"name": "c", "namespace": "shop", "uid": "c"}, "data": {"t": TOKEN}})
    writer = Writer(path, Meta())
    hashes = [line.data["content_sha256"] for line in history.lines]
    for line, event in zip(history.lines, history.events, strict=True):
        writer.line(msgspec.structs.replace(line, data={**line.data, "state_hash": "ab" * 32}))
        writer.event(event)
    writer.line(history.line("api.request", data={"path": f"x?token={TOKEN}", "header": f"Bearer {PLANTED}"}))
    writer.flush()
    if not is_open:
        writer.close(Meta(ended="now"))

    members = _members(path)
    for planted in (PLANTED, ENCODED, TOKEN, "ab" * 32, *hashes[:2]):
        assert all(planted.encode() not in data for data in members.values()), planted
    with Recording.open(path) as recording:
        found = msgspec.json.decode(recording.object_at("secrets", "shop", "s", 1))
        assert found["data"] == {"password": f"••• {len(PLANTED)} bytes"}
        assert found["metadata"]["uid"] == "u"
    writer.close()


def _members(path):
    if path.is_dir():
        raw = {each.name: each.read_bytes() for each in path.iterdir()}
    else:
        with zipfile.ZipFile(path) as found:
            raw = {name: found.read(name) for name in found.namelist()}
    unpacked = {f"{name}, unpacked": gzip.decompress(data) for name, data in raw.items() if data[:2] == b"\x1f\x8b"}
    assert len(unpacked) >= 4
    return raw | unpacked
