"""What a pod needs that not every node has: reasons and messages are upstream's."""

import pytest

from kubelet.admission.features import NodeFeatures
from kubelet.managers.allocation import Rejection
from services.api.features.declared_features import HOST_USERS as HOST_USERS_FEATURE
from services.api.features.declared_features import RESTART_ALL

APP_ARMOR = {"appArmorProfile": {"type": "RuntimeDefault"}}
STRICT = {"securityContext": {"supplementalGroupsPolicy": "Strict"}}
POD_LEVEL = {"resources": {"requests": {"cpu": "1"}}}
HOST_USERS = {"hostNetwork": True, "hostUsers": False}
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}


def outcome(features, pod):
    return features.refuses_first(pod) or features.refuses_last(pod)


@pytest.mark.parametrize(
    ("lacking", "spec", "reason", "message"),
    [
        ({"app_armor": False}, {"securityContext": APP_ARMOR}, "AppArmor",
         "Cannot enforce AppArmor: AppArmor is not enabled on the host"),
        ({"app_armor": False}, {"containers": [{"name": "c", "securityContext": APP_ARMOR}]}, "AppArmor",
         "Cannot enforce AppArmor: AppArmor is not enabled on the host"),
        ({"gates": {"AppArmor": False}}, {"securityContext": APP_ARMOR}, "AppArmor",
         "Cannot enforce AppArmor: AppArmor disabled by feature-gate"),
        ({"groups_policy": False}, STRICT, "SupplementalGroupsPolicyNotSupported",
         "SupplementalGroupsPolicy=Strict is not supported in this node"),
        ({"gates": {"PodLevelResources": False}}, POD_LEVEL, "PodLevelResourcesNotSupported",
         "PodLevelResources feature gate is disabled"),
        ({}, HOST_USERS, "PodFeatureUnsupported",
         f"Pod requires node features that are not available: {HOST_USERS_FEATURE}"),
        ({}, HOST_USERS | {"containers": [{"name": "c", "restartPolicyRules": [RULE]}]}, "PodFeatureUnsupported",
         f"Pod requires node features that are not available: {RESTART_ALL}, {HOST_USERS_FEATURE}"),
    ],
)  # fmt: skip
def test_a_node_refuses_what_it_lacks(a_pod, lacking, spec, reason, message):
    assert outcome(NodeFeatures(**lacking), a_pod(spec=spec)) == Rejection(reason, message)


@pytest.mark.parametrize(
    ("lacking", "spec"),
    [
        ({}, STRICT | POD_LEVEL | {"containers": [{"name": "c", "securityContext": APP_ARMOR}]}),
        ({"app_armor": False}, {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
        ({"groups_policy": False}, {"securityContext": {"supplementalGroupsPolicy": "Merge"}}),
        ({"groups_policy": False, "gates": {"SupplementalGroupsPolicy": False}}, STRICT),
        ({"declared": ("UserNamespacesHostNetworkSupport",)}, HOST_USERS),
        ({}, {"hostNetwork": True}),
        ({"declared": None}, HOST_USERS | {"containers": [{"name": "c", "restartPolicyRules": [RULE]}]}),
        ({"release": "1.35"}, HOST_USERS),
    ],
)
def test_a_node_that_has_it_takes_the_pod(a_pod, lacking, spec):
    assert outcome(NodeFeatures(**lacking), a_pod(spec=spec)) is None


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"featureGates": {"Sidecars": False}}, "node n1: featureGates: 'Sidecars', want one of AppArmor, "),
        ({"declaredFeatures": ["Anything"]}, "node n1: declaredFeatures: 'Anything', want one of DRANode"),
        ({"version": "1.33"}, r"node n1: version: '1\.33', want one of 1\.34, 1\.35, 1\.36, 1\.37"),
    ],
)
def test_a_definition_cannot_lack_or_declare_an_unknown_feature(a_node, fields, reported):
    with pytest.raises(ValueError, match=reported):
        a_node(**fields)
