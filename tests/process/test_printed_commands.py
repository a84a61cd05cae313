"""Every `keplab` command that a document or a `--help` prints is run: on its own, as a scenario's test, or one after the other at one mesh.

What is not run is listed with the reason. tests/architecture/test_commands.py finds the commands, and checks names, options, switches and
files of all of them; docs/tutorial/measure-your-own-kep.md has a test of its own. A word that stands for something of the reader's (`pod/NAME`,
version 1234, /tmp/mesh) is replaced by what the mesh here has; seeds are cut to one, because what is tried is the command.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lab.cli.__main__ import run
from tests.architecture.test_commands import PLACEHOLDER, printed
from tests.process.test_up import ENVIRON, KEPLAB, wait_for

ROOT = Path(__file__).parents[2]
MINUTES = "takes minutes or an hour; tests of its own run it with small amounts"
NAMED = "a sentence names it"
READERS = "names what the reader has: a file, a KIND, an etcd, a folder of a real node"
HOW = {
    r"(?!ui|record|replay|import|export).*\S+\.keprec.*": "tests/component/scenarios/test_recorded_commands.py runs each with a recording",
    r"events --event sched.moved --for pod/web-0": "as `events --for`; tests/component/scheduler/test_queue_moves.py",
    r"component .*": "becomes another program, which would be this one's end; tests/compose",
    r"--help|(\S+ )*--help|switches.*|measures( -o json| utilization)?|scenarios.*|bench scheduler --list": "alone",
    r"verbs( pod| expect| kill -o json| -o markdown)?|completion \w+|doctor.*": "alone",
    r"new (experiment|plugin|controller|kind) .*": "tests/unit/cli runs each, and the test that it makes",
    r"verbs --editor .*": "writes into the reader's editor; tests/unit/scenarios reads what it writes",
    r"(run|compare) .*--containers .*": "needs Docker; tests/compose",
    r"run runaway": "as `run experiments/runaway/runaway.txt`",
    r"runs.*": "after the simulated",
    r"run experiments/[\w/-]+\.txt": "scenario",
    r"run experiments/[\w/-]+\.txt --seed \d": "the scenario's test runs it with seeds of its own",
    r"run experiments/[\w-]+": "all scenarios of a topic, which tests/scenarios runs one by one",
    r"run experiments/scheduling/releases.txt --set emulate.version=1.37": "simulated",
    r"run experiments/runaway/runaway.txt --set kubelet.on_reject=unbind -o json": "simulated",
    r"(trace|explain) \S+ --run experiments/\S+( --(svg|html) web\.\w+)?": "simulated",
    r"explore experiments/races/\S+ --around list": "simulated",
    r"compare experiments/first-life/.*": "simulated",
    r"diff latest~1 latest": "after the simulated",
    r"up --nodes 5 --detach": "mesh",
    r"ui --page race.html .*|ui --run .*": READERS,
    r"ui.*": "serves until Ctrl-C; tests/process/test_page.py asks it",
    r"status.*|get .*|history .*|restart.*|trace pod/\S+( -o json)?|explain (pod/\S+|scheduler/queue)( -\S+ \S+)?": "mesh",
    r"logs( scheduler --tail 20| --since 5m -o json)?|events( --for pod/web-0 --since 5m)?": "mesh",
    r"logs kubelet -f|events -w .*": "follows until Ctrl-C; tests/process follows them",
    r"events latest .*|report latest": "after the simulated",
    r"(diff|report|events) (?=\S*\d)[a-z0-9]{5}\b.*|report .*\.json": READERS,
    r"diff 1200 1234.*|fork --at 1234 -e kill .*": "mesh",
    r"down|store( --data /tmp/mesh -o json)?|down --data /tmp/mesh --purge": "mesh",
    r"measures packing": "needs examples/packing-ratio to be installed; tests/examples runs it",
    r"fork .*": "as the forks that are run here; tests/process/test_past.py runs more",
    r"rotate.*|up .*--security strict.*": "tests/process/test_mutual_tls.py renews the certificates of such a mesh",
    r"up .*etcd.*|.*--engine etcd.*": "needs etcd; tests/process/test_up_etcd.py",
    r"up.*": "starts a mesh with another option; tests/process starts one with each",
    r".*--processes.*": "real time: tests/process runs scenarios in this mode",
    r"bench.*|chaos.*|explore.*|compare.*|diff experiments.*": MINUTES,
    r"run experiments .*|run experiments/runaway/\*\.txt.*": MINUTES,
    r"run experiments/races/freed-capacity.txt --schedule race.json": "tests/unit/explore/test_replay.py replays a schedule",
    r"device-plugin.*": "ends with Ctrl-C; tests/process/test_devices_as_processes.py",
    r"dra-driver.*": "ends with Ctrl-C; tests/process/test_dra_driver_by_hand.py",
    r"(run|trace) -o json|trace --html": NAMED,
    r"(import|export|record|replay|scale|raw|snapshot).*": "tests/process/test_exchange.py runs each, with files of its own",
    r"(trace-check|anonymise).*": "tests/unit/exchange and tests/scenarios/test_traces.py run each, with files of their own",
    r"run gpus/gpus\.txt": "tests/scenarios/test_traces.py makes such a scenario, and runs it",
    r"sync.*": "follows a cluster until Ctrl-C; tests/component/exchange/test_sync.py",
    r"run (FILE|two-steps)\.yaml": "tests/scenarios/test_kep_140.py runs such files",
    r"diff RV1 RV2": READERS,
    r"down --purge": "as `down --data /tmp/mesh --purge`, which is run",
    r"store --accept-loss": "there is no loss; tests/durability has one",
}
"""What is done with a command, or why nothing: the first pattern that all of it matches."""
ENDS_WITH_1 = [("run", "experiments/scheduling/releases.txt", "--set", "emulate.version=1.37")]
"""The scenario is written for one release and shows what the other does."""
ORDER = ("status", "get", "history", "explain", "trace", "diff", "logs", "events", "fork", "restart", "down", "store")
"""At the mesh; `down --purge` is the last of all."""
PODS = [
    ("web-0", "default"),
    ("hello", "default"),
    ("web-76f59b67f4-km42m", "default"),
    ("web-7d4b9c-x2x5k", "default"),
    ("web-7d4b9c-x2x5k", "shop"),
]  # the names that documents use


def how_of(words, is_mention):
    """Return what is done with a command, or why it is not run."""
    if is_mention and len(words) < 2 and words[0] not in ("status", "down", "store", "switches", "scenarios", "runs"):
        return NAMED
    text = " ".join(word.replace("pod/NAME", "pod/web-0") for word in words)
    if any(PLACEHOLDER.search(word) for word in text.split()):
        return READERS
    return next((how for pattern, how in HOW.items() if re.fullmatch(pattern, text)), "")


@pytest.fixture(scope="module")
def commands():
    """Return the words of each command that is printed, once, by what is done with it."""
    found = {}
    for _, words, is_mention in printed():
        if words:
            found.setdefault(words, []).append(how_of(words, is_mention))
    return {words: min(how, key=lambda each: each not in DONE) for words, how in found.items()}


DONE = ("alone", "scenario", "simulated", "after the simulated", "mesh")


def test_every_command_is_run_or_says_why_not(commands, capsys):
    counted = Counter(how if how in DONE else "not run" for how in commands.values())
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(commands)} commands are printed: {', '.join(f'{n} {how}' for how, n in counted.items())}\n"
        )

    assert [] == [" ".join(words) for words, how in commands.items() if not how]
    assert sum(counted[how] for how in DONE) >= 70


def test_scenarios_that_are_printed_are_those_that_have_tests(commands):
    files = [words[1] for words, how in commands.items() if how == "scenario"]

    assert len(files) > 10
    assert [] == [name for name in files if not (ROOT / name).is_file()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("experiments", "examples", "deploy"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.timeout(300)
def test_commands_that_need_no_mesh(commands, folder, capsys):
    wrong = []
    for how in ("alone", "simulated", "after the simulated"):
        for words in sorted(each for each, done in commands.items() if done == how):
            code = _here(_cut(words))
            if code not in (
                (0, 1) if words[0] in ("diff", "runs", "doctor", "events") or words in ENDS_WITH_1 else (0,)
            ):
                wrong.append(f"keplab {' '.join(words)}: exit code {code}: {capsys.readouterr().err[-500:]}")

    assert [] == wrong


def _here(words):
    """Return the exit code of a command that is run in this process, which has imported everything already."""
    try:
        return run(list(words))
    except SystemExit as ended:
        return ended.code


def _cut(words):
    """Return a command with its seeds cut to one."""
    pairs = zip(("", *words), words, strict=False)
    return ["1" if before == "--seeds" else word for before, word in pairs]


@pytest.mark.timeout(400)
def test_commands_at_one_mesh(commands, folder, capsys):
    there = [words for words, how in commands.items() if how == "mesh" and words[0] != "up"]
    assert len(there) >= 25
    assert _keplab(folder, "up", "--nodes", "5", "--detach").returncode == 0
    try:
        first = _populate(folder)
        wrong = []
        for words in sorted(there, key=lambda each: (each[-1] == "--purge", ORDER.index(each[0]), each)):
            code = _here(_named(words, folder, first))
            if code not in ((0, 1) if words[0] == "diff" else (0,)):  # a diff that finds something ends with 1
                wrong.append(f"keplab {' '.join(words)}: exit code {code}: {capsys.readouterr().err[-500:]}")
    finally:
        _keplab(folder, "down")

    assert [] == wrong


def _keplab(folder, *words):
    return subprocess.run(
        [*KEPLAB, *words], capture_output=True, text=True, env=ENVIRON, cwd=folder, timeout=120, check=False
    )


def _objects():
    spec = {"containers": [{"name": "main", "image": "web"}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    web = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": web},
        *(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
            for name, namespace in PODS
        ),
    ]


def _populate(folder):
    """Make what the documents' examples name, and return two versions of the mesh."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": _objects()})
    kubectl = ["kubectl", "--kubeconfig", str(folder / ".keplab" / "kubeconfig")]
    done = subprocess.run([*kubectl, "apply", "-f", "-"], input=manifest, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before = _version(kubectl)
    wait_for(lambda: "Pending" not in _kubectl(kubectl, "get", "pods", "-A"), "pods that run")
    return before, _version(kubectl)


def _kubectl(kubectl, *words):
    return subprocess.run([*kubectl, *words], capture_output=True, text=True, check=True).stdout


def _version(kubectl):
    return json.loads(_kubectl(kubectl, "get", "--raw", "/api/v1/pods"))["metadata"]["resourceVersion"]


def _named(words, folder, versions):
    """Return a command with the versions, the pod and the folder of the mesh here."""
    names = {"1200": versions[0], "1234": versions[1], "pod/NAME": "pod/web-0", "/tmp/mesh": str(folder / ".keplab")}
    return [names.get(word, word) for word in words]


def test_a_command_that_no_rule_knows_is_noticed():
    assert "" == how_of(("sing", "aloud"), False)
    assert "mesh" == how_of(("explain", "pod/NAME"), False)
    assert READERS == how_of(("run", "FILE"), False)
    assert ["compare", "--seeds", "1", "a7"] == _cut(("compare", "--seeds", "50", "a7"))
