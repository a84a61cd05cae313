"""CronJobs, autoscalers and endpoint slices as processes: each controller acts under its own rights over real gRPC."""

from lab.scenarios.run import load_scenario, run_as_processes

SCENARIO = """# Three controllers
limit 90s
nodes n1 cpu=8
service web
deployment web replicas=1 cpu=1
autoscaler web min=2 max=3 cpu=50%
cronjob tick schedule="@every 4s" cpu=100m run="exit 0 after 1s"
expect within 20s each endpointslices endpoints[0].conditions.ready == true
expect within 20s created jobs name=tick-* >= 1
expect within 30s each deployments.apps name=web spec.replicas == 2
expect within 20s each endpointslices endpoints[1].conditions.ready == true
expect within 20s each cronjobs name=tick status.lastSuccessfulTime ~ Z
"""


def test_each_acts_as_a_process_of_its_own(tmp_path):
    path = tmp_path / "scenario.txt"
    path.write_text(SCENARIO)
    result = run_as_processes(load_scenario(path), engine="memory", data_dir=tmp_path / "mesh")

    assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
