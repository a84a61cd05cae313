"""Stages of objects that no kubelet hosts: a simulated mesh whose controller manager plays them."""

from lab.scenarios.run import simulate
from lab.scenarios.script.verbs import read_scenario

STAGE = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: counts}
spec:
  resourceRef: {apiGroup: apps/v1, kind: Deployment}
  selector:
    matchExpressions: [{key: .metadata.labels.seen, operator: NotIn, values: ["VALUE"]}]
  delay: {durationMilliseconds: 10000}
  next:
    event: {type: Normal, reason: SeenVALUE, message: seen}
    patches: [{root: metadata, template: 'labels: {seen: "VALUE"}'}]
"""


def outcome(text):
    """Run a scenario in virtual time; return the lines that did not hold, what ended it, and the broken invariants."""
    result = simulate(read_scenario(text, "stages.txt"), seed=1)
    failed = [f"line {j.line}: {j.text} ({j.seen})" for j in result.expectations if not j.passed]
    return failed, result.error, result.violations


def test_a_stage_waits_anew_when_it_is_edited_and_is_not_played_once_it_is_deleted():
    assert ([], "", []) == outcome(f"""\
# A stage of a Deployment
enable-crds Stage
nodes n1 cpu=4
deployment web replicas=1 cpu=100m
apply <<EOF
{STAGE.replace("VALUE", "one")}EOF
expect for 8s count events reason=Seenone == 0
delete stage/counts
apply <<EOF
{STAGE.replace("VALUE", "two")}EOF
expect for 9s count events reason=Seentwo == 0
expect within 2s each deployments name=web metadata.labels.seen == two
delete stage/counts
deployment shop replicas=1 cpu=100m
expect for 20s count deployments name=shop metadata.labels.seen=two == 0
expect count events reason=Seenone == 0
expect count events reason=Seentwo == 1
""")


def test_a_controller_manager_that_comes_back_plays_what_was_waiting_once():
    assert ([], "", []) == outcome(f"""\
# The controller manager dies while a stage waits, and again as it is to be played
stages <<EOF
{STAGE.replace("VALUE", "one")}EOF
nodes n1 cpu=4
deployment web replicas=1 cpu=100m
expect for 5s count deployments metadata.labels.seen=one == 0
kill controllers down=1s
kill controllers at=controller.stage count=1
expect within 30s each deployments name=web metadata.labels.seen == one
expect for 20s each deployments name=web metadata.labels.seen == one
""")


def as_user(name, label, impersonation):
    """Return a Stage that gives ConfigMaps a label they lack, as that user."""
    return f"""\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {{name: {name}}}
spec:
  resourceRef: {{apiGroup: v1, kind: ConfigMap}}
  selector:
    matchLabels: {{moved: "yes"}}
    matchExpressions: [{{key: .metadata.labels.{label}, operator: DoesNotExist}}]
  next:
    patches: [{{root: metadata, template: 'labels: {{{label}: "yes"}}'{impersonation}}}]
"""


def a_map(name, namespace):
    metadata = f"{{name: {name}, namespace: {namespace}, labels: {{moved: 'yes'}}}}"
    return f"{{apiVersion: v1, kind: ConfigMap, metadata: {metadata}}}"


def test_a_patch_is_made_as_the_impersonated_user_and_a_refusal_is_an_event_after_which_the_object_goes_on():
    assert ([], "", []) == outcome(f"""\
# user:shop owns the namespace shop, and no other
enable-crds Stage
nodes n1 cpu=4
apply <<EOF
{{apiVersion: v1, kind: Namespace, metadata: {{name: shop}}}}
---
{a_map("own", "shop")}
---
{a_map("foreign", "default")}
EOF
apply <<EOF
{as_user("owned", "owned", ", impersonation: {username: 'user:shop'}")}EOF
expect within 5s each configmaps name=own metadata.labels.owned == yes
expect within 5s count events reason=StageFailed involvedObject.name=foreign == 1
expect count events reason=StageFailed involvedObject.name=own == 0
expect count configmaps metadata.labels.owned=yes == 1
delete stage/owned
apply <<EOF
{as_user("mine", "mine", "")}EOF
expect within 5s count configmaps metadata.labels.mine=yes == 2
""")
