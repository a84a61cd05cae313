"""`keplab up` on a real machine: everything starts, what dies comes back, and nothing is left behind."""

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

WAIT_MAX_S = 60.0
ROOT = Path(__file__).resolve().parents[2]
KEPLAB = [sys.executable, "-m", "lab.cli"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
ROLES = ["apiserver", "scheduler", "controllers", "claim-controller", "kubelet/h0", "kubelet/h1"]


def keplab(*arguments, cwd=None):
    return subprocess.run([*KEPLAB, *arguments], capture_output=True, text=True, env=ENVIRON, cwd=cwd, timeout=120)


@pytest.fixture
def start():
    """Starts `keplab up` in the foreground; a mesh that is left at the end is killed with its processes."""
    started = []

    def begin(data, *arguments):
        process = subprocess.Popen(
            [*KEPLAB, "up", "--data", str(data), "--engine", "memory", "--nodes", "2", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRON,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(condition, what="it"):
    deadline = time.monotonic() + WAIT_MAX_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.05)
    return found


def status_of(data):
    return json.loads(keplab("status", "--data", str(data), "-o", "json").stdout)


def ready(data):
    def look():
        state = data / "mesh.json"
        found = json.loads(state.read_text()) if state.exists() else {}
        return found if found.get("ready") else None

    return wait_for(look, "a ready mesh")


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def nodes_in(kubeconfig):
    """Return the names of the nodes, asked for with nothing but the kubeconfig."""
    config = yaml.safe_load(Path(kubeconfig).read_text())
    url = config["clusters"][0]["cluster"]["server"]
    trusted = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    request = urllib.request.Request(
        f"{url}/api/v1/nodes", headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    )
    with urllib.request.urlopen(request, timeout=10, context=ssl.create_default_context(cadata=trusted)) as answer:
        return sorted(item["metadata"]["name"] for item in json.load(answer)["items"])


def pids_of(status):
    return [process["pid"] for process in status["processes"]]


def ports_of(status):
    return [port for process in status["processes"] for port in process["ports"].values()]


@pytest.mark.executed
def test_a_mesh_starts_serves_kubectl_and_leaves_no_process_and_no_port(tmp_path):
    began = keplab("up", "--data", str(tmp_path / "m"), "--engine", "memory", "--nodes", "2", "--detach", "-o", "json")
    assert 0 == began.returncode, began.stderr
    status = json.loads(began.stdout)
    try:
        assert ROLES == [process["name"] for process in status["processes"]]
        assert all(is_alive(pid) for pid in pids_of(status))
        assert ["node-0", "node-1"] == wait_for(
            lambda: nodes_in(status["kubeconfig"])[1:] and nodes_in(status["kubeconfig"])
        )
        assert {"name", "pid", "port", "uptime_s", "restarts", "last_error"} <= status["processes"][0].keys()
        assert status["grpc_target"].endswith(f":{status['processes'][0]['port']}")
        again = keplab("up", "--data", str(tmp_path / "m"))
        printed = f"Error: a mesh already runs on {tmp_path / 'm'} (pid {status['supervisor_pid']})"
        assert (3, printed) == (again.returncode, again.stderr.partition(";")[0])
        shown = keplab("status", "--data", str(tmp_path / "m"))
        assert 0 == shown.returncode
        assert ROLES == [line.split()[0] for line in shown.stdout.splitlines()[-len(ROLES) :]]
    finally:
        ended = keplab("down", "--data", str(tmp_path / "m"))

    assert (0, "mesh is down\n") == (ended.returncode, ended.stdout)
    assert not [pid for pid in [*pids_of(status), status["supervisor_pid"]] if is_alive(pid)]
    assert not [port for port in ports_of(status) if listens(port)]
    assert 1 == keplab("status", "--data", str(tmp_path / "m")).returncode
    lines = [json.loads(x) for f in (tmp_path / "m" / "events").iterdir() for x in f.read_text().splitlines()]
    assert len(ROLES) == sum(line["ev"] == "proc.stop" and line["data"]["exit_code"] == 0 for line in lines)


def test_the_page_is_served_beside_the_mesh_knows_all_moves_in_the_queue_and_ends_with_it(tmp_path):
    data = str(tmp_path / "m")
    began = keplab("up", "--data", data, "--engine", "memory", "--nodes", "1", "--ui", "--detach", "-o", "json")
    assert 0 == began.returncode, began.stderr
    status = json.loads(began.stdout)
    page, port = status["page"].partition("#")[0], int(status["page"].split(":")[2].partition("/")[0])
    try:
        assert status["page"] == status_of(data)["page"]
        with urllib.request.urlopen(page, timeout=10) as answer:
            assert b"keplab" in answer.read()
        assert ["telemetry.queue_moves=on"] == status["switches"]
    finally:
        assert 0 == keplab("down", "--data", data).returncode
    assert not listens(port)


def test_what_a_flag_asks_for_gives_way_to_the_switch_that_is_set(tmp_path):
    data = str(tmp_path / "m")
    quiet = ("--ui", "--set", "telemetry.queue_moves=off")
    began = keplab("up", "--data", data, "--engine", "memory", "--nodes", "0", *quiet, "--detach", "-o", "json")
    assert 0 == began.returncode, began.stderr
    try:
        assert ["telemetry.queue_moves=off"] == json.loads(began.stdout)["switches"]
    finally:
        assert 0 == keplab("down", "--data", data).returncode


@pytest.mark.executed
def test_a_killed_process_comes_back_and_status_says_what_happened(start, tmp_path):
    process = start(tmp_path)
    before = {p["name"]: p for p in ready(tmp_path)["processes"]}

    os.kill(before["scheduler"]["pid"], signal.SIGKILL)
    os.kill(before["apiserver"]["pid"], signal.SIGKILL)
    wait_for(lambda: not json.loads((tmp_path / "mesh.json").read_text())["ready"], "the loss")
    after = {p["name"]: p for p in ready(tmp_path)["processes"]}

    assert [1, 1] == [after[name]["restarts"] for name in ("apiserver", "scheduler")]
    assert "scheduler was ended by SIGKILL" == after["scheduler"]["last_error"]
    assert before["apiserver"]["ports"]["grpc"] == after["apiserver"]["ports"]["grpc"]
    assert before["controllers"]["pid"] == after["controllers"]["pid"]
    process.send_signal(signal.SIGINT)
    assert 130 == process.wait(WAIT_MAX_S)
    assert not [p for p in pids_of({"processes": after.values()}) if is_alive(p)]


@pytest.mark.executed
@pytest.mark.parametrize("sign", ["logs", "run/apiserver.ready", "logs/kubelet_h0.log"])
def test_ctrl_c_while_starting_leaves_nothing(start, tmp_path, sign):
    process = start(tmp_path)
    wait_for((tmp_path / sign).exists, sign)

    process.send_signal(signal.SIGINT)
    process.wait(WAIT_MAX_S)

    assert 130 == process.returncode
    assert not processes_below(tmp_path)
    assert not (tmp_path / "mesh.json").exists()


@pytest.mark.executed
def test_children_do_not_outlive_a_killed_supervisor(start, tmp_path):
    process = start(tmp_path)
    status = ready(tmp_path)

    process.kill()
    process.wait()

    wait_for(lambda: not [pid for pid in pids_of(status) if is_alive(pid)], "the end of all children")
    assert "no mesh runs" in keplab("status", "--data", str(tmp_path)).stdout
    assert "no mesh runs" in keplab("down", "--data", str(tmp_path)).stdout


def processes_below(data):
    """Return the command lines of living processes that were started for this data directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(data) in line and "--die-with-parent" in line and is_alive(int(entry.name)):
                found.append(line)
    return found


def test_a_busy_port_is_one_line_and_exit_code_3(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        ended = keplab("up", "--data", str(tmp_path), "--rest-port", str(port))

    assert (3, 1) == (ended.returncode, len(ended.stderr.splitlines()))
    assert str(port) in ended.stderr
    assert not processes_below(tmp_path)


def test_a_directory_that_cannot_be_written_is_one_line_and_exit_code_3():
    for arguments in ((), ("--detach",)):
        ended = keplab("up", "--data", "/proc/keplab", *arguments)

        assert (3, "Error: /proc/keplab: No such file or directory\n") == (ended.returncode, ended.stderr)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["up", "--set", "nope=1"], "no switch is called 'nope'"),
        (["up", "--set", "kubelet.on_reject=cry"], "want one of fail, recreate, unbind"),
        (["up", "--nodes", "-1"], "--nodes"),
        (["up", "--engine", "paper"], "--engine"),
        (["bogus"], "no such command 'bogus'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, said, tmp_path):
    ended = keplab(*arguments, cwd=tmp_path)

    assert 2 == ended.returncode
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / ".keplab").exists()


def test_a_wrong_kubelet_configuration_ends_the_start_in_one_line(tmp_path):
    ended = keplab("up", "--data", str(tmp_path), "--engine", "memory", "--latency", "sandbox=never")

    assert 3 == ended.returncode
    assert "no distribution 'never'" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not processes_below(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("[{", "Input data was truncated"),
        ("{}", "Expected `array`"),
        ('[{"name": "n1", "nmua": "2x8"}]', "node n1: Object contains unknown field `nmua`"),
        ('[{"name": "n1", "numa": "eight"}]', "node n1: numa: 'eight', want for example 2x8"),
        ('[{"name": "n1"}, {"name": "n1"}]', "node n1 is defined twice"),
    ],
)
def test_a_wrong_nodes_file_is_refused_before_anything_starts(content, said, tmp_path):
    file = tmp_path / "nodes.json"
    if content is not None:
        file.write_text(content)

    ended = keplab("up", "--data", str(tmp_path / "data"), "--nodes-file", str(file))

    assert 2 == ended.returncode
    assert f"--nodes-file {file}: " in ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()


def test_nodes_come_from_a_file_as_they_are_defined_there(tmp_path):
    nodes = ROOT / "experiments" / "runaway" / "nodes.json"
    ended = keplab("up", "--data", str(tmp_path), "--engine", "memory", "--nodes-file", str(nodes), "--detach")
    try:
        assert 0 == ended.returncode, ended.stderr
        assert ["n1", "n2", "n3"] == nodes_in(tmp_path / "kubeconfig")
    finally:
        keplab("down", "--data", str(tmp_path))


def test_switches_as_a_document_have_all_their_facts():
    (switch,) = json.loads(keplab("switches", "kubelet.on_reject", "-o", "json").stdout)["switches"]

    assert ("choice", "fail") == (switch["type"], switch["default"])
    assert {"fail", "recreate", "unbind"} <= set(switch["values"])
    assert {"name", "type", "default", "values", "meaning", "source"} <= switch.keys()


def test_of_two_schedulers_one_leads_and_when_it_ends_the_lease_is_free_at_once(start, tmp_path):
    start(tmp_path, "--schedulers", "2", "--extra-scheduler", "second")
    ready(tmp_path)

    def schedulers():
        found = [p for p in status_of(tmp_path)["processes"] if p["name"].startswith("scheduler")]
        return found if any(p["leads"] for p in found) else None

    def leader():
        found = schedulers()
        return found and next((p["name"], p["pid"]) for p in found if p["leads"])

    before = wait_for(schedulers, "a leader")
    name, pid = leader()
    os.kill(pid, signal.SIGTERM)
    began = time.monotonic()
    wait_for(lambda: (found := leader()) and found != (name, pid), "another leader, or another life of that one")

    assert {p["name"]: p["leads"] for p in before} == {
        "scheduler-1": name == "scheduler-1", "scheduler-2": name == "scheduler-2", "scheduler-second": None,
    }  # fmt: skip
    assert time.monotonic() - began < 15, "no component had to wait for the lease to run out"
