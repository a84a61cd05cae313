"""KubeSchedulerConfiguration as people write it: what is read, what is refused, and in which words."""

import pytest

from scheduler.configuration.document import KubeSchedulerConfiguration, as_json
from scheduler.configuration.file import Configured
from scheduler.configuration.parser import ConfigurationError, read, with_defaults
from scheduler.configuration.validation import problems
from services.api.switches import Switches
from services.api.times import Duration
from services.runtime.config import StartError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def refusals(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        read(text)
    return refused.value.problems


def wrong(body: str) -> list[str]:
    return problems(with_defaults(read(HEAD + body), "default-scheduler"))


# -- reading -------------------------------------------------------------------------------------------------


def test_every_field_that_upstream_writes_is_read():
    text = """
parallelism: 8
leaderElection: {leaderElect: false, leaseDuration: 1m30s, renewDeadline: 10s, retryPeriod: 250ms,
  resourceLock: leases, resourceName: other, resourceNamespace: here}
clientConnection: {kubeconfig: /k, acceptContentTypes: a, contentType: b, qps: 7.5, burst: 9}
enableProfiling: false
enableContentionProfiling: false
percentageOfNodesToScore: 30
percentageOfPlacementsToScore: 40
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
delayCacheUntilActive: true
profiles:
- schedulerName: one
  percentageOfNodesToScore: 50
  plugins:
    multiPoint: {enabled: [{name: A, weight: 3}], disabled: [{name: "*"}]}
    preEnqueue: {}
    placementGenerate: {enabled: [{name: B}]}
  pluginConfig: [{name: A, args: {deep: {er: [1]}}}]
extenders:
- urlPrefix: https://e/
  filterVerb: f
  preemptVerb: p
  prioritizeVerb: s
  bindVerb: b
  weight: 4
  enableHTTPS: true
  tlsConfig: {insecure: true, serverName: n, certFile: c, keyFile: k, caFile: a, caData: aGk=}
  httpTimeout: 1.5s
  nodeCacheCapable: true
  managedResources: [{name: example.com/x, ignoredByScheduler: true}]
  ignorable: true
"""

    found = read(HEAD + text)

    assert (90.0, 0.25) == (found.leader_election.lease_duration, found.leader_election.retry_period)
    assert {"deep": {"er": [1]}} == found.profiles[0].plugin_config[0].args
    assert 3 == found.profiles[0].plugins.multi_point.enabled[0].weight
    assert (b"hi", 1.5, True) == (
        found.extenders[0].tls_config.ca_data,
        found.extenders[0].http_timeout,
        found.extenders[0].enable_https,
    )
    assert ("1m30s", "1.5s") == (
        as_json(found)["leaderElection"]["leaseDuration"],
        as_json(found)["extenders"][0]["httpTimeout"],
    )


def test_all_unknown_fields_are_named_with_their_paths():
    text = HEAD + "foo: 1\nprofiles: [{plugins: {filter: {enabledd: []}}}, {scheduler: x}]\n"

    assert {
        "foo: unknown field",
        "profiles[0].plugins.filter.enabledd: unknown field",
        "profiles[1].scheduler: unknown field",
    } == set(refusals(text))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("parallelism: 3\nparallelism: 4", "parallelism: given twice, in lines 3 and 4"),
        (
            "profiles:\n- schedulerName: a\n  schedulerName: b",
            "profiles[0].schedulerName: given twice, in lines 4 and 5",
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{weight: 3}]}}}]",
            "profiles[0].plugins.score.enabled[0].name: Required value",
        ),
        ("podMaxBackoffSeconds: 1.5", "podMaxBackoffSeconds: expected `int | null`, got `float`"),
        ("profiles: {}", "profiles: expected `array`, got `object`"),
        (
            "leaderElection: {retryPeriod: 5}",
            "leaderElection.retryPeriod: expected a duration such as `15s`, got `int`",
        ),
        (
            "leaderElection: {retryPeriod: 5 s}",
            "leaderElection.retryPeriod: '5 s' is not a duration such as 15s or 1m30s",
        ),
        ("parallelism: 3000000000", "parallelism: expected `int` <= 2147483647"),
    ],
)
def test_a_misfit_is_reported_with_its_path(body, problem):
    assert [problem] == refusals(HEAD + body)


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("", "the file is empty"),
        ("- a", "want a KubeSchedulerConfiguration, not a list"),
        ("kind: KubeSchedulerConfiguration", "apiVersion: want kubescheduler.config.k8s.io/v1, not None"),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1beta3",
            "apiVersion: want kubescheduler.config.k8s.io/v1, not 'kubescheduler.config.k8s.io/v1beta3'",
        ),
        ("apiVersion: kubescheduler.config.k8s.io/v1\nkind: Policy", "kind: want KubeSchedulerConfiguration"),
        ("a: [", "not YAML: line 1, column 5: "),
    ],
)
def test_what_is_no_configuration_is_refused(text, beginning):
    assert refusals(text)[0].startswith(beginning)


@pytest.mark.parametrize("text", ["15s", "1m30s", "2h0m0s", "250ms", "1.5s", "0s", "-5s", "100µs"])
def test_a_duration_is_spelt_as_go_spells_it(text):
    assert text == Duration.parse(text).text


def test_zeros_and_nulls_mean_the_defaults():
    text = "leaderElection: {leaseDuration: 0s, leaderElect: false}\nclientConnection: {qps: 0}\nprofiles: null\n"

    found = with_defaults(read(HEAD + text), "mine")

    assert (15.0, False, 50.0) == (
        found.leader_election.lease_duration,
        found.leader_election.leader_elect,
        found.client_connection.qps,
    )
    assert ["mine"] == [profile.scheduler_name for profile in found.profiles]


# -- validating ----------------------------------------------------------------------------------------------


def test_the_empty_configuration_is_valid():
    assert [] == problems(with_defaults(KubeSchedulerConfiguration(), "default-scheduler"))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("parallelism: 0", "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        ("percentageOfNodesToScore: 101", "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"),
        (
            "profiles: [{percentageOfNodesToScore: -1}]",
            "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        ),
        (
            "preEnqueuePodStatusDelay: -1s",
            'preEnqueuePodStatusDelay: Invalid value: "-1s": must be greater than or equal to 0',
        ),
        ("podInitialBackoffSeconds: 0", "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"),
        (
            "podInitialBackoffSeconds: 11",
            "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        ("clientConnection: {burst: -1}", "clientConnection.burst: Invalid value: -1: must be non-negative"),
        (
            "leaderElection: {renewDeadline: 15s}",
            'leaderElection.leaseDuration: Invalid value: "15s": must be greater than `RenewDeadline`',
        ),
        (
            "leaderElection: {retryPeriod: -1s}",
            'leaderElection.retryPeriod: Invalid value: "-1s": must be greater than zero',
        ),
        (
            "leaderElection: {resourceLock: configmaps}",
            'leaderElection.resourceLock: Invalid value: "configmaps": resourceLock value must be "leases"',
        ),
        ("profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName: Required value"),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]",
            'profiles[1].schedulerName: Duplicate value: "profiles[0].schedulerName"',
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: X}]}}}]",
            'profiles[1].plugins.queueSort: Invalid value: "X": must be the same for all profiles',
        ),
        (
            "profiles: [{plugins: {queueSort: {enabled: [{name: X}, {name: Y}]}}}]",
            "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]",
            (
                'profiles[0].plugins.filter.enabled[0]: Invalid value: "EBSLimits": was invalid in version "v1" '
                '(KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
            ),
        ),
        ("profiles: [{pluginConfig: [{name: A}, {name: A}]}]", 'profiles[0].pluginConfig[1]: Duplicate value: "A"'),
        (
            "extenders: [{urlPrefix: u, prioritizeVerb: p}]",
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            "extenders: [{urlPrefix: u, bindVerb: b}, {urlPrefix: v, bindVerb: b}]",
            'extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind',
        ),
        (
            "extenders: [{urlPrefix: u, managedResources: [{name: kubernetes.io/x}]}]",
            (
                'extenders[0].managedResources[0].name: Invalid value: "kubernetes.io/x": '
                "is an invalid extended resource name"
            ),
        ),
        (
            "extenders: [{urlPrefix: u, managedResources: [{name: e.com/x}, {name: e.com/x}]}]",
            'extenders[0].managedResources[1].name: Invalid value: "e.com/x": duplicate extender managed resource name',
        ),
    ],
)
def test_an_invalid_configuration_is_refused_in_upstreams_words(body, problem):
    assert [problem] == wrong(body)


def test_queue_sort_arguments_must_be_the_same_in_all_profiles():
    sort = "plugins: {queueSort: {enabled: [{name: S}]}}"
    body = (
        f"profiles: [{{schedulerName: a, {sort}, pluginConfig: [{{name: S, args: {{by: age}}}}]}}, "
        f"{{schedulerName: b, {sort}, pluginConfig: [{{name: S, args: {{by: name}}}}]}}]"
    )

    assert [
        ("profiles[1].pluginConfig.args: Invalid value: {'by': 'name'}: queueSort must be the same for all profiles")
    ] == wrong(body)


@pytest.mark.parametrize(
    ("plugin", "args", "problem"),
    [
        ("DefaultPreemption", "{minCandidateNodesPercentage: 101}",
         ".minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]"),
        ("InterPodAffinity", "{hardPodAffinityWeight: 101}",
         ".hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
        ("NodeAffinity", "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}",
         (".addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: "
         "must have at least one node selector term")),
        ("NodeResourcesFit", "{scoringStrategy: {type: Fullest}}",
         ('.scoringStrategy.type: Unsupported value: "Fullest": supported values: "LeastAllocated", "MostAllocated", '
         '"RequestedToCapacityRatio"')),
        ("NodeResourcesFit", "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 101}]}}",
         ".scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]"),
        ("NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio}}",
         (".scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is "
         "RequestedToCapacityRatio")),
        ("NodeResourcesFit", "{ignoredResourceGroups: [a/b]}",
         '.ignoredResourceGroups[0]: Invalid value: "a/b": resource group name can\'t contain \'/\''),
        ("NodeResourcesFit", ("{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: "
         "{shape: [{utilization: 50, score: 1}, {utilization: 50, score: 2}]}}}"),
         (".scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 50: "
         "values must be sorted in increasing order")),
        ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 2}]}",
         ".resources[0].weight: Invalid value: 2: must be 1"),
        ("PodTopologySpread", "{defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}",
         '.defaultingType: Invalid value: "System": when .defaultConstraints are not empty'),
        ("PodTopologySpread", "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z}]}",
         ".defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty"),
        ("VolumeBinding", "{bindTimeoutSeconds: -1}",
         ".bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"),
        ("DynamicResources", "{filterTimeout: -1s}",
         '.filterTimeout: Invalid value: "-1s": must be zero or positive'),
    ],
)  # fmt: skip
def test_plugin_arguments_obey_upstreams_rules(plugin, args, problem):
    assert [f"profiles[0].pluginConfig[0].args{problem}"] == wrong(
        f"profiles: [{{pluginConfig: [{{name: {plugin}, args: {args}}}]}}]"
    )


def test_two_zeros_leave_preemption_without_candidates():
    found = wrong(
        "profiles: [{pluginConfig: [{name: DefaultPreemption, "
        "args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}}]}]"
    )

    assert 2 == len(found)
    assert all("cannot be zero at the same time as" in problem for problem in found)


def test_the_delay_of_reports_is_refused_without_the_gate_that_brings_it(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "preEnqueuePodStatusDelay: 2s\n")

    with pytest.raises(StartError) as refused:
        Configured.read(str(file), "default-scheduler", Switches())
    taken = Configured.read(str(file), "default-scheduler", Switches({"SchedulerPreEnqueuePodStatus": True}))

    assert refused.value.message.endswith(
        "preEnqueuePodStatusDelay: no release of Kubernetes has it; it is part of KEP-5501 and needs "
        "SchedulerPreEnqueuePodStatus=true, which is false"
    )
    assert (taken.report_delay_s, taken.document([{}])["preEnqueuePodStatusDelay"]) == (2.0, "2s")
    assert "preEnqueuePodStatusDelay" not in Configured.read("", "default-scheduler", Switches()).document([{}])


def test_a_plugin_that_no_configuration_can_turn_on_is_an_error_not_ignored():
    with pytest.raises(StartError) as refused:
        Configured(Switches()).profiles(("example.plugin:PLUGIN",), None)
    assert refused.value.message == "--plugin example.plugin:PLUGIN: nothing turns it on: name it in a --config"
