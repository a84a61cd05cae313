"""Everything that reads text: for each its seeds, the errors it may raise, and what must hold of what it returned."""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from apiserver_fake.extensions.customresources import jsonpath
from apiserver_fake.registry import decode
from apiserver_fake.registry.authorization.authentication import read_tokens
from apiserver_fake.registry.patch.patch import apply_patch
from apiserver_fake.registry.read import ContinueTokens
from apiserver_fake.registry.schema.schemas import conform, shape_of
from apiserver_fake.rest import media_types, protobuf
from apiserver_fake.storage import journal, records
from kubelet.dra.emulated import definition as drivers
from kubelet.managers import cpu_topology
from kubelet.node import definition as nodes
from kubelet.node import health
from kubelet.runtime import latency, pages, script
from kubelet.runtime.records import Checkpoint, PodRecord, newest
from kubelet.runtime.shell import interpreter
from kubelet.static_pods.manifests import ManifestError, read_manifest
from lab.explore.moments import EventError, parse_event
from lab.explore.replay import ReplayError, read_replay
from lab.scenarios.script import expectation, scenario, value_types, workload
from lab.scenarios.script.verbs import VERBS
from scheduler.configuration import parser as configuration
from services.api import cron, label_syntax, quantity, selectors, times
from services.api.errors import ApiError, from_status
from services.api.kinds.resourceslice import Device
from services.api.meta import Key
from services.api.node_selection import integer_of
from services.api.resources import resources
from services.api.switches import SwitchError, Switches
from services.api.wire import LeaseEpoch, Request
from services.cel import device_selectors, values
from services.cel import quantities as cel_quantities
from services.cel import times as cel_times
from services.cel import versions as cel_versions
from services.kwok.documents import KwokError
from services.kwok.documents import read as kwok_read
from services.kwok.expressions import Draws, Expressions, Moment, go_object
from services.kwok.log_lines import read_line
from services.kwok.stages import jq
from services.kwok.stages.document import StageError, read_stages
from services.runtime.config import StartError
from services.runtime.mesh_directory import read_state
from services.runtime.roles import read_role
from services.telemetry.spans import parse_traceparent
from services.telemetry.traces import read_spans
from tests.fuzz.values import NUMBERS, TEXTS, bad_values, encoded

STALL_S, STALL_CHARACTERS = 1.0, 500_000


@dataclass(frozen=True)
class Parser:
    """`read` takes text (bytes where `is_bytes`); `raises` are the errors it is known for; `seeds` are good texts,
    `parts` what they are made of; `holds(text, found)` asserts what must be true of what was read."""

    read: object
    raises: tuple = (ValueError,)
    seeds: tuple = ()
    parts: tuple = ()
    is_bytes: bool = False
    holds: object = None


def from_file(read):
    """Return what reads a file that has these bytes."""

    def reader(data):
        with tempfile.NamedTemporaryFile(prefix="keplab-fuzz-") as file:
            file.write(data)
            file.flush()
            return read(Path(file.name))

    return reader


def same(text, found):
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


def quantity_holds(text, found):
    canonical = quantity.canonical(text)
    assert quantity.units(canonical) == found, f"{canonical} is another amount than {text}"
    assert quantity.canonical(canonical) == canonical


def selector_holds(text, found):
    parts = [selectors.parse_label_selector(each) for each in text.split(",")] if "(" not in text else [found]
    assert found.matches(LABELS) == all(each.matches(LABELS) for each in parts)


def schedule_holds(text, found):
    at = found.next_after(1_700_000_000.0)
    assert at is None or at > 1_700_000_000.0


def time_holds(text, found):
    assert times.parse_time(times.format_time(found)) == int(found // 1)


def patched(kind, form):
    shape = shape_of("v1", kind)
    document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "labels": {"a": "b"}, "finalizers": ["x/y"]},
                "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}], "args": ["a"]}], "tolerations": [{"key": "a"}]}}  # fmt: skip
    before = json.dumps(document)

    def reader(data):
        patch = decode.decode(data)
        found = apply_patch(document, patch, form, shape, kind)
        assert json.dumps(document) == before, "the patch has changed what it was applied to"
        if isinstance(found, dict):
            conform(shape, "v1", kind, {**found, "apiVersion": "v1", "kind": kind})
        return found

    return reader


def frames_holds(data, found):
    payloads, length = found
    assert b"".join(map(journal.frame, payloads)) == data[:length]


DEVICE = msgspec.convert(
    {"name": "d", "attributes": {"x": {"int": 2}, "v": {"version": "1.2.3"}}, "capacity": {"m": {"value": "1Gi"}}},
    Device,
)
LABELS = {"a": "b", "c": ""}
TOKENS = ContinueTokens(b"secret")
FINGERPRINT = TOKENS.fingerprint(Request(verb="list", resource="pods"))
JSON_PARTS = (
    '"a"',
    '"',
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "1",
    "-",
    "0",
    ".",
    "e",
    "E9999",
    "null",
    "true",
    "NaN",
    "\\u",
    "\\ud800",
    "\\",
    " ",
    "9" * 80,
    "[" * 70,
)
YAML_PARTS = (
    "!!bool ",
    "!!timestamp ",
    "a: ",
    "- ",
    "\n",
    "  ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a ",
    "*a",
    "!!binary ",
    "!x ",
    "|",
    ">",
    "'",
    '"',
    "#",
    "---\n",
    "? ",
    ": ",
    "~",
    "1",
    ".nan",
    "1:1",
    "<<: ",
    "%",
)
WORD_PARTS = (
    "a",
    "1",
    "-",
    "=",
    ":",
    ",",
    ";",
    ".",
    "+",
    " ",
    "/",
    "9" * 20,
    "0",
    "..",
    "s",
    "ms",
    "%",
    "(",
    ")",
    "!",
    "<",
    ">",
    '"',
    "'",
)
SCRIPT = "node n1..n3 cpu=4 memory=8Gi pods=10\nswitch scheduler.seed=1\npods a 3 cpu=100m for 5s exit 0\nat 5s kill scheduler\nwait 10s\nexpect pod/a-0 phase=Running within 20s\n"
POLICY = b'{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata","verbs":["get"]}]}'
CONFIGURATION = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 16
profiles:
- schedulerName: default-scheduler
  plugins: {score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit, weight: 5}]}}
  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}}]
"""
KWOK_KINDS = tuple(
    f"apiVersion: kwok.x-k8s.io/v1alpha1\nkind: {kind}\nmetadata: {{name: a, namespace: b}}\nspec: {spec}\n"
    for kind, spec in (
        (
            "ClusterResourceUsage",
            "{selector: {matchNames: [p]}, usages: [{containers: [c], usage: {cpu: {value: 1m}}}]}",
        ),
        (
            "Metric",
            "{path: '/metrics/{nodeName}/x', metrics: [{name: m, kind: histogram, buckets: [{le: 1, value: '2'}]}]}",
        ),
        ("Exec", "{execs: [{local: {workDir: /, envs: [{name: A, value: b}], securityContext: {runAsUser: 1}}}]}"),
        ("PortForward", "{forwards: [{ports: [1], target: {port: 80, address: '::1'}}]}"),
        ("Logs", "{logs: [{logsFile: a, previousLogsFile: b, follow: true}]}"),
    )
)
STAGE = """apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: '.metadata.deletionTimestamp', operator: DoesNotExist}]}
  weight: 1
  delay: {durationMilliseconds: 1000, jitterDurationMilliseconds: 2000}
  next: {statusTemplate: "phase: Running\\n", finalizers: {add: [{value: a}]}, event: {type: Normal, reason: R, message: m}}
"""
MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
CEL = (
    'device.driver == "d" && device.attributes["d"].x > 1', "true", "device.capacity['d'].m.compareTo(quantity('1Gi')) >= 0",
    "[1, 2].all(x, x > 0) || size('a') == 1", "{'a': 1}.a == 1 ? true : false", "duration('1h') < duration('2h')", "'a'.matches('^a+$')",
    "timestamp('2026-01-01T00:00:00Z').getFullYear() == 2026", "device.attributes['d'].v.isGreaterThan(semver('1.2.3'))", "1u + 2u == 3u", "b'\\x00' == b'a'",
)  # fmt: skip
CEL_PARTS = ("device", ".", "driver", "attributes", "['a']", "(", ")", "[", "]", "{", "}", "'", '"', "&&", "||", "!", "-", "==", "<", "in", "1", "1u", "1.5", "0x", "true",
             "null", "x", ",", "?", ":", "all(", "map(", "size(", "matches(", "quantity(", "has(", "\\", "b'", "r'", '"""', "9" * 40, "`a`", "//")  # fmt: skip


def cel(text):
    """Compile a selector and evaluate it for one device."""
    selector = device_selectors.compile_selector(text)
    try:
        return selector("d", DEVICE)
    except device_selectors.SelectorFailure:
        return None


EXPRESSIONS = Expressions(has_usage=True)
OBJECTS = {kind: go_object(kind, {"metadata": {"name": "a"}}) for kind in ("node", "pod", "container")}


def kwok_number(text):
    return EXPRESSIONS.number(text, OBJECTS, Moment(1e9, Draws((1,))))


PARSERS = {
    "json": Parser(decode.decode, (ApiError,), ('{"a":[1,2.5,null,true,"x"],"b":{"c":"\\u00e9"}}',), JSON_PARTS, is_bytes=True, holds=same),
    "json-object": Parser(lambda b: decode.decode_object(b, "a Pod", []), (ApiError,), ('{"a":1,"a":2}',), JSON_PARTS, is_bytes=True),
    "yaml": Parser(lambda b: decode.decode(media_types.json_from_yaml(b), []), (ApiError,), ("a: 1\nb:\n- c\n- {d: e}\nf: |\n  text\n",), YAML_PARTS, is_bytes=True, holds=same),
    "protobuf": Parser(protobuf.decode, (ApiError,), (protobuf.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}).decode("latin-1"),), ("\x0a", "\x12", "\xff", "\x80", "k8s\0", "\x08"), is_bytes=True),
    "quantity": Parser(quantity.units, seeds=("1", "100m", "1Gi", "1.5", "1e3", "-2Ki", "+.5"), parts=(*WORD_PARTS, "Ki", "Ei", "e", "E", "m", "n"), holds=quantity_holds),
    "canonical-quantity": Parser(quantity.canonical, (), ("1", "1024Mi", "0.5"), WORD_PARTS),
    "label-selector": Parser(selectors.parse_label_selector, (ApiError, ValueError), ("a=b", "a in (b,c),!d", "a notin (b),c>1"), (*WORD_PARTS, "in", "notin", "!="), holds=selector_holds),
    "field-selector": Parser(selectors.parse_field_selector, (ApiError, ValueError), ("metadata.name=a", "spec.nodeName!=n,status.phase=Running"), (*WORD_PARTS, "\\", "!=", "==")),
    "selection": Parser(lambda t: records.Selection.parse(resources()["pods"], "", t, ""), (ApiError, ValueError), ("a=b",), WORD_PARTS),
    "resource-version": Parser(records.parse_rv, (ApiError,), ("0", "12"), WORD_PARTS),
    "label-value": Parser(label_syntax.value_problem, (), ("a", "a.b-c"), WORD_PARTS),
    "integer": Parser(integer_of, (), ("1", "-5"), WORD_PARTS),
    "cron": Parser(cron.parse, seeds=("*/5 * * * *", "0 0 1-5 JAN,feb sun", "@hourly", "TZ=UTC 1 1 1 1 1", "0 22 * * 1-5"), parts=(*WORD_PARTS, "*", "*/", "@every ", "MON", "?", "TZ=Etc/UTC "), holds=schedule_holds),
    "zone": Parser(times.zone_of, (ValueError,), ("UTC", "Europe/Berlin"), (*WORD_PARTS, "..", "/etc/passwd", "\x00")),
    "time": Parser(times.parse_time, (ValueError,), ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123+02:00"), (*WORD_PARTS, "T", "Z"), holds=time_holds),
    "seconds": Parser(times.seconds_in, (ValueError,), ("1h30m", "-1.5s", "100ms"), (*WORD_PARTS, "h", "µs")),
    "cel-duration": Parser(cel_times.duration, (values.EvaluationError,), ("1h30m", "-1.5s"), (*WORD_PARTS, "h", "ns")),
    "cel-timestamp": Parser(cel_times.timestamp, (values.EvaluationError,), ("2026-01-01T00:00:00Z",), (*WORD_PARTS, "T", "Z")),
    "cel-quantity": Parser(cel_quantities.quantity, (values.EvaluationError,), ("1Gi", "1.5", "1e3"), (*WORD_PARTS, "Ki", "e")),
    "cel-semver": Parser(cel_versions.semver, (values.EvaluationError,), ("1.2.3", "1.2.3-a.1+b"), WORD_PARTS),
    "cel-semver-normalized": Parser(lambda t: cel_versions.semver(cel_versions.normalize(t)), (values.EvaluationError,), ("v1", "v01.2"), WORD_PARTS),
    "cel": Parser(cel, (device_selectors.SelectorError,), CEL, CEL_PARTS),
    "cel-new": Parser(device_selectors.check_new_selector, (device_selectors.SelectorError, device_selectors.SelectorTooComplex), CEL, CEL_PARTS),
    "jsonpath": Parser(lambda t: jsonpath.find(t, {"a": [{"b": 1}], "spec": {"replicas": 1}}), (ValueError,), (".spec.replicas", ".a[0].b", ".a[?(@.b==1)]", ".a[*].b", "..b"), (*WORD_PARTS, "[", "]", "*", "@", "?")),
    "merge-patch": Parser(patched("Pod", "merge"), (ApiError,), ('{"metadata":{"labels":{"a":null}}}',), JSON_PARTS, is_bytes=True),
    "strategic-patch": Parser(patched("Pod", "strategic"), (ApiError,), ('{"spec":{"containers":[{"name":"c","image":"x"}],"$setElementOrder/containers":[{"name":"c"}]}}', '{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/y"]},"spec":{"$retainKeys":["containers"],"tolerations":[{"$patch":"replace"}]}}'),
                              (*JSON_PARTS, '"$patch":', '"$retainKeys":', '"$setElementOrder/containers":', '"$deleteFromPrimitiveList/finalizers":', '"delete"', '"replace"'), is_bytes=True),
    "json-patch": Parser(patched("Pod", "json"), (ApiError,), ('[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"test","path":"/spec","value":{}}]', '[{"op":"move","from":"/metadata/labels","path":"/a"},{"op":"remove","path":"/spec/containers/0"}]'),
                         (*JSON_PARTS, '"op":', '"path":', '"from":', '"/spec/containers/-"', '"/spec/containers/0"', '"add"', '"copy"', '"/"'), is_bytes=True),
    "lease-epoch": Parser(LeaseEpoch.parse, seeds=("a/b/3",), parts=WORD_PARTS, holds=lambda text, found: LeaseEpoch.parse(str(found)) == found),
    "continue-token": Parser(lambda t: TOKENS.read(t, FINGERPRINT), (ApiError,), (TOKENS.token(5, Key("a", "b"), FINGERPRINT, 0.0),), (*WORD_PARTS, "_", "A")),
    "status": Parser(lambda b: from_status(400, b), (), ('{"kind":"Status","code":400,"message":"m","reason":"BadRequest","details":{"causes":[]}}',), JSON_PARTS, is_bytes=True),
    "traceparent": Parser(parse_traceparent, (), ("00-" + "1" * 32 + "-" + "2" * 16 + "-01",), WORD_PARTS),
    "scenario": Parser(lambda t: scenario.parse_scenario(t, "a.txt", VERBS), (scenario.ScriptError,), (SCRIPT,), (*WORD_PARTS, "\n", "node ", "pods ", "expect ", "at 5s ", "n1..n3")),
    "expectation": Parser(lambda t: expectation.parse_expectation(t), seeds=("pod/a phase=Running within 5s", "count pods phase=Running >= 3"), parts=(*WORD_PARTS, " within ", ">=", "count ")),
    "names": Parser(value_types.parse_names, seeds=("n1", "n1..n40", "a,b"), parts=WORD_PARTS),
    "duration": Parser(value_types.parse_duration, seeds=("5s", "200ms", "1.5h"), parts=WORD_PARTS),
    "toleration": Parser(workload.toleration, seeds=("a=b:NoSchedule", "a:NoExecute"), parts=WORD_PARTS),
    "scheduler-configuration": Parser(configuration.read, (configuration.ConfigurationError,), (CONFIGURATION,), (*YAML_PARTS, "profiles:", "plugins:", "weight: 9")),
    "stages": Parser(lambda t: read_stages([("a.yaml", t)]), (StageError,), (STAGE,), (*YAML_PARTS, "{{ .x }}", "{{", "}}", "next:")),
    "kwok-kinds": Parser(lambda t: kwok_read([("a.yaml", t)]), (KwokError,), KWOK_KINDS, (*YAML_PARTS, "kind: ", "Cluster", "spec: ", "expression: ", "value: ")),
    "kwok-expressions": Parser(kwok_number, seeds=('Quantity("1Gi") * 2 - Quantity("1Ki")', 'pod.SinceSecond() + Rand() / 0.5', 'Now().UnixSecond()'), parts=(*WORD_PARTS, "pod.", "node.", '["', "()", "Quantity(", "Usage(", " ? ", " : ")),
    "log-line": Parser(read_line, seeds=("2026-01-01T00:00:00Z stdout F a", '{"log":"a","stream":"stderr","time":"2026-01-01T00:00:00Z"}'), parts=(" ", "stdout", "P", "{", '"', "\0", "9"), is_bytes=True),
    "jq": Parser(lambda t: jq.Query(t).values({"a": [{"b": 1}]}), (jq.JqError,), seeds=(".metadata.name", ".a[] | select(.b == 1)"), parts=(*WORD_PARTS, "|", "[", "]", "select(")),
    "manifest": Parser(lambda b: read_manifest("a.yaml", b, "n", 0.0), (ManifestError,), (MANIFEST,), YAML_PARTS, is_bytes=True),
    "container-script": Parser(script.parse_script, seeds=("exit 0 after 5s", "forever", "exit 1 after 2s; ready after 1s"), parts=(*WORD_PARTS, " after ", "exit ", "forever")),
    "shell": Parser(interpreter.parse, (interpreter.ShellError,), ("echo a && sleep 1; exit 3 | cat > /x", "if [ -f a ]; then b; fi", 'echo "$A${B}"'), (*WORD_PARTS, "&&", "||", "$", "${", "`", "|", "\n", "if ", "then ", "fi", "while ", "do ", "done", "<<")),
    "http-head": Parser(pages.read_head, (), ("GET / HTTP/1.1\r\nHost: a\r\n\r\n",), ("\r\n", " ", ":", "GET", "HTTP/1.1", "\0", "/"), is_bytes=True),
    "latency": Parser(lambda t: latency.Distribution.parse(t).draw(2**63), seeds=("constant:1", "lognormal:1,0.5", "empirical:1,2"), parts=(*WORD_PARTS, "pareto:", "normal:", "1e308", "nan", "inf")),
    "node-options": Parser(nodes.parse_options, seeds=("A+B:1",), parts=WORD_PARTS),
    "node-faults": Parser(health.parse_node_faults, seeds=("runtime down for 5s", "events broken 3 times"), parts=(*WORD_PARTS, " for ", "runtime ", "down")),
    "drivers": Parser(drivers.parse_drivers, seeds=("gpu.example.com:4:prepare=2+nic.example.com:1:dead=60-100",), parts=(*WORD_PARTS, "dead=", "prepare=", "slices=")),
    "driver-definition": Parser(drivers.read_definition, seeds=('{"name":"gpu.example.com","devices":4}',), parts=(*JSON_PARTS, '"devices":', '"slices":', '"name":'), is_bytes=True),
    "cpus": Parser(cpu_topology.parse_cpus, seeds=("0-3,8",), parts=WORD_PARTS, holds=lambda text, found: cpu_topology.parse_cpus(cpu_topology.format_cpus(found)) == found),
    "switches": Parser(lambda t: Switches.parse([t]), (SwitchError,), ("kubelet.on_reject=unbind", "DRADeviceTaintRules=true"), (*WORD_PARTS, "true")),
    "explored-event": Parser(parse_event, (EventError,), ("sched.bind_call,n=3,data.node=a",), (*WORD_PARTS, "data.", "n=")),
    "token-file": Parser(from_file(read_tokens), (StartError,), ('{"tokens":[{"token":"a","user":"b","groups":["c"]}],"node_key":"00"}',), (*JSON_PARTS, '"token":', '"user":'), is_bytes=True),
    "role-file": Parser(from_file(read_role), (ValueError,), ("kind: ClusterRole\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: system:controller:a}\nrules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n",), YAML_PARTS, is_bytes=True),
    "replay-file": Parser(from_file(read_replay), (ReplayError,), ('{"scenario":"a","seed":1,"switches":["a=b"]}',), JSON_PARTS, is_bytes=True),
    "span-file": Parser(from_file(read_spans), (), ('{"name":"a","trace_id":"1"}\n',), (*JSON_PARTS, "\n"), is_bytes=True),
    "mesh-file": Parser(lambda b: mesh_file(b), (ValueError,), ('{"rest_url":"http://a","processes":[]}',), JSON_PARTS, is_bytes=True),
    "journal": Parser(lambda b: journal.frames(b, "log"), (journal.JournalError,), ((journal.frame(b"abc") + journal.frame(b"")).decode("latin-1"),), ("KLJ1", "\0", "\xff", "a"), is_bytes=True, holds=frames_holds),
    "runtime-record": Parser(lambda b: newest(PodRecord, b.split(b"\n"), frozenset(("n",))), (), ('["n","u",1,"ns","p","10.0.0.1",1.0,[["c",1.0]]]\n',), (*JSON_PARTS, "\n"), is_bytes=True),
    "checkpoint": Parser(lambda b: newest(Checkpoint, b.split(b"\n"), frozenset(("n",))), (), ('["n","u",1]\n',), (*JSON_PARTS, "\n"), is_bytes=True),
}  # fmt: skip


def mesh_file(data):
    with tempfile.TemporaryDirectory(prefix="keplab-fuzz-") as folder:
        (Path(folder) / "mesh.json").write_bytes(data)
        return read_state(Path(folder))


@st.composite
def texts_for(draw, parser):
    """A text that is nearly what the parser reads, or something else."""
    match draw(st.sampled_from([0, 0, 0, 0, 0, 1, 1, 2, 3])):
        case 0 if parser.seeds:
            text = draw(st.sampled_from(parser.seeds))
            for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
                at = draw(st.integers(0, len(text)))
                length = draw(st.sampled_from([0, 0, 1, 1, 3, 10]))
                piece = draw(st.one_of(st.sampled_from(parser.parts or TEXTS), st.sampled_from(TEXTS), st.characters()))
                text = text[:at] + piece * draw(st.sampled_from([1, 1, 1, 1, 2, 100])) + text[at + length :]
        case 1:
            text = "".join(draw(st.lists(st.sampled_from(parser.parts or TEXTS), max_size=12)))
        case 2:
            text = draw(st.sampled_from(TEXTS))
        case _:
            text = draw(st.text(max_size=30))
    if not parser.is_bytes:
        # Text comes out of a decoder of UTF-8, which has no lone surrogates.
        return text.encode("utf-8", "replace").decode()
    if draw(st.sampled_from([False] * 9 + [True])):
        return encoded(draw(st.one_of(bad_values, st.sampled_from(NUMBERS))))
    return text.encode(
        "latin-1" if all(ord(c) < 256 for c in text) and draw(st.booleans()) else "utf-8", "surrogatepass"
    )


def check(name, text):
    """Read the text and look at everything that must hold. Raises: AssertionError, or what the parser should not."""
    parser = PARSERS[name]
    begun_s, refusal = time.thread_time(), "?"
    try:
        found = parser.read(text)
    except parser.raises as error:
        found, refusal = None, str(error)
    if parser.holds is not None and found is not None:
        parser.holds(text, found)
    assert refusal, "a refusal without a message"
    taken_s = time.thread_time() - begun_s
    most_s = STALL_S * max(1.0, len(text) / STALL_CHARACTERS)
    assert taken_s < most_s, f"{taken_s:.1f} s for {len(text)} characters, {text[:200]!r}"
