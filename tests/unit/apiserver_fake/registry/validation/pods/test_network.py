"""A pod's DNS, host names, aliases and ports of the host; the texts are upstream's."""

from __future__ import annotations

import pytest

from tests.unit.apiserver_fake.registry.validation.pods.rules import C0, LABEL, SUBDOMAIN, container, pod, wrong

DNS = "spec.dnsConfig"
IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
MANY = "[" + ",".join(['"a"'] * 33) + "]"
MATCH = "must match `containerPort` when `hostNetwork` is true"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"dnsPolicy": "", "dnsConfig": {"searches": [".", "a.b.", "_a.b"], "options": [{"name": "ndots"}]}}, []),
        ({"dnsPolicy": "zz"},
         [('spec.dnsPolicy: Unsupported value: "zz": supported values: '
          '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"')]),
        ({"dnsPolicy": "None"}, [f"{DNS}: Required value: must provide `dnsConfig` when `dnsPolicy` is None"]),
        ({"dnsPolicy": "None", "dnsConfig": {"searches": ["A"]}},
         [f"{DNS}.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"]),
        ({"dnsConfig": {"nameservers": ["1.1.1.1", "a", "::1", "1.1.1.2"], "options": [{"value": "1"}]}},
         [f'{DNS}.nameservers: Invalid value: ["1.1.1.1","a","::1","1.1.1.2"]: must not have more than 3 nameservers',
          f'{DNS}.nameservers[1]: Invalid value: "a": {IP}', f"{DNS}.options[0]: Required value: must not be empty"]),
        ({"dnsConfig": {"searches": ["a"] * 33}},
         [f"{DNS}.searches: Invalid value: {MANY}: must not have more than 32 search paths"]),
        ({"hostname": "a.b", "subdomain": "B"},
         ['spec.hostname: Invalid value: "a.b": must not contain dots', f'spec.subdomain: Invalid value: "B": {LABEL}']),
        ({"hostAliases": [{"ip": "1.1.1.1", "hostnames": ["a.b"]}, {"ip": "a", "hostnames": ["A"]}]},
         [f'spec.hostAliases[1].ip: Invalid value: "a": {IP}',
          f'spec.hostAliases[1].hostnames[0]: Invalid value: "A": {SUBDOMAIN}']),
        ({"hostnameOverride": "a.b"}, []),
        ({"hostnameOverride": "A", "hostNetwork": True, "setHostnameAsFQDN": True},
         ["spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
          "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
          f'spec.hostnameOverride: Invalid value: "A": {SUBDOMAIN}']),
        ({"hostnameOverride": "a" * 65}, ["spec.hostnameOverride: Too long: may not be more than 64 bytes"]),
        ({"hostNetwork": True, "containers": [container(ports=[{"containerPort": 80}, {"containerPort": 1, "hostPort": 2}])]},
         [f"{C0}.ports[1].hostPort: Invalid value: 2: {MATCH}"]),
    ],
)  # fmt: skip
def test_a_pods_names_and_its_dns(world, spec, found):
    assert wrong(world, pod(**spec)) == found
