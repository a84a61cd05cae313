"""`keplab doctor`: each check finds what is wrong and says what to do; a failure is exit code 1."""

import json
import socket

import pytest

from lab.cli.__main__ import run
from lab.cli.commands import doctor
from services.runtime import mesh_directory


@pytest.fixture
def program(tmp_path):
    """Make a program that prints a text, or fails."""

    def made(text="", code=0):
        path = tmp_path / f"program{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        path.chmod(0o755)
        return str(path)

    return made


@pytest.mark.parametrize(
    ("found", "status"), [((3, 10, 9), "fail"), ((3, 11, 0), "ok"), ((3, 14, 1), "ok"), ((3, 15, 0), "warn")]
)
def test_the_version_of_python(found, status):
    assert doctor.python(found).status == status


def test_libraries_are_held_against_the_lock_where_there_is_one(tmp_path):
    lock = tmp_path / "lock"
    lock.write_text("click==0.1 \\\n    --hash=sha256:00\nonly-windows==1 ; sys_platform == 'win32' \\\n")
    differ = doctor.libraries(lock)
    lock.write_text("no-such-library==1\n")

    assert (differ.status, "click" in differ.message, "lock: 0.1" in differ.message) == ("warn", True, True)
    assert doctor.libraries(lock) == doctor.Check(
        "libraries", "fail", "missing: no-such-library", doctor.libraries(lock).remedy
    )
    assert doctor.libraries(tmp_path / "none").status == "ok"


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({}, "ok"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "fail"),
        ({"https_proxy": "http://proxy:3128", "NO_PROXY": "example.com"}, "fail"),
        ({"HTTP_PROXY": "http://proxy:3128", "no_proxy": "localhost,127.0.0.1"}, "ok"),
        ({"HTTP_PROXY": "http://proxy:3128", "no_proxy": "*"}, "ok"),
    ],
)
def test_a_proxy_that_takes_loopback_is_a_failure(environ, status):
    assert doctor.proxies(environ).status == status


def test_loopback_that_does_not_listen_is_a_failure(monkeypatch):
    def refused(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    assert doctor.loopback().status == "ok"
    monkeypatch.setattr(socket, "create_server", refused)
    assert doctor.loopback().status == "fail"


def test_a_system_without_proc_is_a_warning(tmp_path):
    assert doctor.proc(tmp_path).status == "warn"


@pytest.mark.parametrize(("free_mib", "status"), [(100, "fail"), (1000, "warn"), (4000, "ok")])
def test_space_is_looked_for_where_the_data_will_be(tmp_path, free_mib, status):
    asked = []
    found = doctor.disk(tmp_path / "a" / "b", lambda path: asked.append(path) or free_mib * doctor.MIB)

    assert (found.status, asked) == (status, [tmp_path])


@pytest.mark.parametrize(("limit", "status"), [(100, "fail"), (1024, "warn"), (65536, "ok"), (-1, "ok")])
def test_the_limit_of_open_files(limit, status):
    assert doctor.open_files(limit).status == status


@pytest.mark.parametrize(("now_s", "status"), [(0.0, "fail"), (4e9, "ok")])
def test_a_clock_before_the_installation_is_a_failure(now_s, status):
    assert doctor.clock(now_s).status == status


def test_the_data_folder_is_its_owners_alone_and_says_whether_a_mesh_runs(tmp_path):
    data = tmp_path / "data"
    assert doctor.data_folder(data).status == "ok"
    data.mkdir(mode=0o700)
    assert doctor.data_folder(data).message == "no mesh runs on it"
    fd = mesh_directory.lock(data)
    assert fd
    assert "a mesh runs on it (pid " in doctor.data_folder(data).message
    data.chmod(0o755)
    assert (doctor.data_folder(data).status, doctor.data_folder(data).remedy) == ("warn", f"chmod go-rwx {data}")
    assert doctor.data_folder(data / mesh_directory.LOCK_FILE).status == "fail"


@pytest.mark.parametrize(("minor", "status"), [(35, "ok"), (36, "ok"), (37, "ok"), (32, "warn")])
def test_the_skew_of_kubectl(program, minor, status):
    path = program(json.dumps({"clientVersion": {"gitVersion": f"v1.{minor}.1"}}))

    assert doctor.kubectl(path).status == status


def test_programs_that_are_missing_or_fail_are_warnings(program):
    assert [doctor.kubectl(None).status, doctor.docker(None).status] == ["warn", "warn"]
    broken = program("no JSON", 1)
    assert [each(broken).status for each in (doctor.kubectl, doctor.docker, doctor.compose)] == ["warn"] * 3
    assert doctor.docker(program("27.1")) == doctor.Check("docker", "ok", "engine 27.1")


def test_a_failure_is_exit_code_1_and_a_document_has_every_check(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    code = run(["doctor", "--data", str(tmp_path / "data"), "-o", "json"])
    found = json.loads(capsys.readouterr().out)

    assert (code, found["ok"]) == (1, False)
    assert {each["name"]: each["status"] for each in found["checks"]}["proxies"] == "fail"
    assert all(each["remedy"] for each in found["checks"] if each["status"] != "ok")
