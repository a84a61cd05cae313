"""What is refused about definitions, word for word as kube-apiserver 1.36 says it, and that those of real projects are not."""

import base64
import copy
from pathlib import Path

import pytest
import yaml

from apiserver_fake.extensions.customresources.definition import (
    definition_warnings,
    validate_definition,
    validate_definition_status,
)
from apiserver_fake.extensions.customresources.structural import Structural
from services.api.errors import BadRequest

HERE = Path(__file__).parent / "definitions"
WHERE = "spec.validation.openAPIV3Schema"
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
STRING = {"type": "string"}


def definition(schema=None, *, spec=None, **version):
    """A definition of one version, which says `version` besides its schema."""
    schema = (
        {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": STRING}}}}
        if schema is None
        else schema
    )
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.a.io"},
        "spec": {
            "group": "a.io",
            "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "conversion": {"strategy": "None"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
            **(spec or {}),
        },
        "status": {"storedVersions": ["v1"]},
    }


def said(new, old=None):
    return [f"{cause.path}: {cause.message}" for cause in validate_definition(new, old)]


def of_field(**schema):
    return {"type": "object", "properties": {"x": schema}}


@pytest.mark.parametrize("path", sorted(HERE.glob("*.yaml")), ids=lambda path: path.stem)
def test_definitions_of_real_projects_are_accepted(path):
    found = yaml.safe_load(path.read_text())
    found["status"] = {"storedVersions": [each["name"] for each in found["spec"]["versions"] if each["storage"]]}
    assert said(found) == []
    assert said(found, found) == []
    assert definition_warnings(found) == []


SPECS = {
    "no group": (
        {"group": ""},
        [
            'metadata.name: Invalid value: "foos.a.io": must be spec.names.plural+"."+spec.group',
            "spec.group: Required value",
        ],
    ),
    "no scope": ({"scope": ""}, ["spec.scope: Required value"]),
    "another scope": (
        {"scope": "Node"},
        ['spec.scope: Unsupported value: "Node": supported values: "Cluster", "Namespaced"'],
    ),
    "kind and listKind alike": (
        {"names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "Foo"}},
        ['spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same'],
    ),
    "no names": (
        {"names": {"plural": "foos"}},
        [
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ],
    ),
    "names that are no labels": (
        {
            "names": {
                "plural": "foos",
                "singular": "foo",
                "kind": "Foo_",
                "listKind": "FooList",
                "shortNames": ["F"],
                "categories": ["1"],
            }
        },
        [
            f'spec.names.kind: Invalid value: "Foo_": may have mixed case, but should otherwise match: {LABEL}',
            f'spec.names.shortNames[0]: Invalid value: "F": {LABEL}',
            f'spec.names.categories[0]: Invalid value: "1": {LABEL}',
        ],
    ),
    "unknown fields kept everywhere": (
        {"preserveUnknownFields": True},
        [
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        ],
    ),
    "unknown fields kept everywhere beside a conversion": (
        {"preserveUnknownFields": True, "conversion": {"strategy": "Lua"}},
        [
            'spec.conversion.strategy: Invalid value: "Lua": must be None if spec.preserveUnknownFields is true',
            'spec.conversion.strategy: Unsupported value: "Lua": supported values: "None", "Webhook"',
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ],
    ),
    "a webhook without strategy": (
        {
            "conversion": {
                "strategy": "None",
                "webhook": {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]},
            }
        },
        [
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
            "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook",
        ],
    ),
    "a strategy without webhook": (
        {"conversion": {"strategy": "Webhook"}},
        [
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    ),
    "another strategy": (
        {"conversion": {"strategy": "Lua"}},
        ['spec.conversion.strategy: Unsupported value: "Lua": supported values: "None", "Webhook"'],
    ),
    "a webhook without address": (
        {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}}},
        ["spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required"],
    ),
    "a webhook over http, of a user": (
        {
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"url": "http://me@a/b?c#d"}, "conversionReviewVersions": ["v1", "v1"]},
            }
        },
        [
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            'spec.conversion.webhookClientConfig.url: Invalid value: "me": user information is not permitted in the URL',
            'spec.conversion.webhookClientConfig.url: Invalid value: "d": fragments are not permitted in the URL',
            'spec.conversion.webhookClientConfig.url: Invalid value: "c": query parameters are not permitted in the URL',
            'spec.conversion.conversionReviewVersions[1]: Invalid value: "v1": duplicate version',
        ],
    ),
    "a webhook's service without name, whose namespace the error names": (
        {
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {"service": {"namespace": "a", "port": 0, "path": "b/c/"}},
                    "conversionReviewVersions": ["v3"],
                },
            }
        },
        [
            "spec.conversion.webhookClientConfig.service.namespace: Required value: service namespace is required",
            "spec.conversion.webhookClientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            "spec.conversion.webhookClientConfig.service.path: Invalid value: \"b/c/\": must start with a '/'",
            'spec.conversion.webhookClientConfig.service.path: Invalid value: "b/c/": segment[0] may not be empty',
            'spec.conversion.conversionReviewVersions: Invalid value: ["v3"]: must include at least one of v1, v1beta1',
        ],
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_definition_is_refused_in_upstreams_words(name):
    spec, expected = SPECS[name]
    assert said(definition(spec=spec)) == expected


SCHEMAS = {
    "no type at the root": ({"properties": {}}, [f"{WHERE}.type: Required value: must not be empty at the root"]),
    "no type of a field": (
        of_field(),
        [f"{WHERE}.properties[x].type: Required value: must not be empty for specified object fields"],
    ),
    "no type of items": (
        of_field(type="array", items={"pattern": "a"}),
        [f"{WHERE}.properties[x].items.type: Required value: must not be empty for specified array items"],
    ),
    "no items": (of_field(type="array"), [f"{WHERE}.properties[x].items: Required value: must be specified"]),
    "an unknown type": (
        of_field(type="text"),
        [
            f'{WHERE}.properties[x].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"'
        ],
    ),
    "another type at the root": (
        {"type": "string"},
        [f'{WHERE}.type: Invalid value: "string": must be object at the root'],
    ),
    "null at the root": (
        {"type": "object", "nullable": True},
        [f"{WHERE}.nullable: Forbidden: nullable cannot be true at the root"],
    ),
    "a map at the root": (
        {"type": "object", "additionalProperties": STRING},
        [f"{WHERE}.additionalProperties: Forbidden: must not be used at the root"],
    ),
    "a type in an alternative": (
        of_field(type="string", anyOf=[{"type": "string"}]),
        [f"{WHERE}.properties[x].anyOf[0].type: Forbidden: must be empty to be structural"],
    ),
    "structure in an alternative": (
        of_field(
            type="object", not_={"description": "a", "default": 1, "x-kubernetes-validations": [{"rule": "true"}]}
        ),
        [
            f"{WHERE}.properties[x].not.default: Forbidden: must be undefined to be structural",
            f"{WHERE}.properties[x].not.description: Forbidden: must be empty to be structural",
            f"{WHERE}.properties[x].not.x-kubernetes-validations: Forbidden: must be empty to be structural",
        ],
    ),
    "a field that only an alternative of the root has": (
        {"type": "object", "properties": {"b": STRING}, "oneOf": [{"properties": {"c": {"minLength": 1}}}]},
        [f"{WHERE}.properties[c]: Required value: because it is defined in {WHERE}.oneOf[0].properties[c]"],
    ),
    "metadata in an alternative": (
        {
            "type": "object",
            "properties": {"metadata": {"type": "object"}},
            "anyOf": [{"properties": {"metadata": {"minProperties": 1}}}],
        },
        [f"{WHERE}.anyOf[0].properties[metadata]: Forbidden: must not be specified in a nested context"],
    ),
    "several mistakes, by path": (
        {"type": "object", "properties": {"b": {}, "a": {}}},
        [
            f"{WHERE}.properties[{name}].type: Required value: must not be empty for specified object fields"
            for name in "ab"
        ],
    ),
    "rules for metadata": (
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
        },
        [
            f"{WHERE}.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ],
    ),
    "a wrong pattern": (
        of_field(type="string", pattern="a["),
        [
            f'{WHERE}.properties[x].pattern: Invalid value: "a[": must be a valid regular expression, but isn\'t: error parsing regexp: missing closing ]: `[`'
        ],
    ),
    "unique items": (
        of_field(type="array", items=STRING, uniqueItems=True),
        [
            f"{WHERE}.properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        ],
    ),
    "fields and a map": (
        of_field(type="object", properties={"b": STRING}, additionalProperties=STRING),
        [
            f"{WHERE}.properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
        ],
    ),
    "a reference": (
        of_field(**{"type": "object", "$ref": "#/a"}),
        [f"{WHERE}.properties[x].$ref: Forbidden: $ref is not supported"],
    ),
    "several schemas for items": (
        of_field(type="array", items=[STRING]),
        [f"{WHERE}.properties[x].items: Forbidden: items must be a schema object and not an array"],
    ),
    "unknown fields not kept": (
        of_field(**{"type": "object", "x-kubernetes-preserve-unknown-fields": False}),
        [
            f"{WHERE}.properties[x].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"
        ],
    ),
    "a resource without fields": (
        of_field(**{"type": "object", "x-kubernetes-embedded-resource": True}),
        [
            f"{WHERE}.properties[x].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        ],
    ),
    "a list of keys that may be absent": (
        of_field(
            **{
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": STRING}},
            }
        ),
        [
            f"{WHERE}.properties[x].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        ],
    ),
    "a list without keys": (
        of_field(**{"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
        [
            f"{WHERE}.properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
        ],
    ),
    "keys that are no fields": (
        of_field(
            **{
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object"},
            }
        ),
        [
            f'{WHERE}.properties[x].x-kubernetes-list-map-keys: Invalid value: ["k"]: entries must all be names of item properties'
        ],
    ),
    "a set of objects": (
        of_field(**{"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
        [
            f"{WHERE}.properties[x].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"
        ],
    ),
    "another list type": (
        of_field(**{"type": "array", "x-kubernetes-list-type": "bag", "items": STRING}),
        [
            f'{WHERE}.properties[x].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map"'
        ],
    ),
    "a map type of a list": (
        of_field(**{"type": "array", "x-kubernetes-map-type": "atomic", "items": STRING}),
        [f'{WHERE}.properties[x].type: Invalid value: "array": must be object if x-kubernetes-map-type is specified'],
    ),
    "a default of another type": (
        of_field(type="integer", default="1"),
        [f'{WHERE}.properties[x].default: Invalid value: "string":  in body must be of type integer: "string"'],
    ),
    "a default with unknown fields": (
        of_field(type="object", properties={"b": STRING}, default={"c": 1}),
        [f'{WHERE}.properties[x].default: Invalid value: {{"c":1}}: must not have unknown fields'],
    ),
    "a default without a needed field": (
        of_field(type="object", properties={"b": STRING}, required=["b"], default={}),
        [f"{WHERE}.properties[x].default.b: Required value"],
    ),
    "a default that breaks a rule": (
        of_field(**{"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > 1"}]}),
        [f"{WHERE}.properties[x].default: Invalid value: 1: failed rule: self > 1"],
    ),
    "a default in metadata": (
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "a"}}}},
        },
        [f"{WHERE}.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"],
    ),
    "a default kind that is no kind": (
        of_field(
            **{
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "properties": {"kind": {"type": "string", "default": "a b"}},
            }
        ),
        [
            f'{WHERE}.properties[x].properties[kind].default: Invalid value: "a b": must result in valid metadata: kind: Invalid value: "a b": may have mixed case, but should otherwise match: {LABEL}'
        ],
    ),
    "a rule that is no expression": (
        of_field(**{"type": "integer", "x-kubernetes-validations": [{"rule": " "}]}),
        [f"{WHERE}.properties[x].x-kubernetes-validations[0].rule: Required value: rule is not specified"],
    ),
    "a rule that costs too much": (
        of_field(
            **{
                "type": "array",
                "items": {"type": "array", "items": STRING},
                "x-kubernetes-validations": [{"rule": "self.all(x, x.all(y, y != 'a'))"}],
            }
        ),
        [
            f"{WHERE}.properties[x].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
            f"{WHERE}.properties[x].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            f"{WHERE}: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
        ],
    ),
    "a rule about the old value of what has none": (
        of_field(
            type="array",
            maxItems=3,
            items={"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
        ),
        [
            f'{WHERE}.properties[x].items.x-kubernetes-validations[0].rule: Invalid value: "self >= oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within {WHERE}.properties[x]'
        ],
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_refused_in_upstreams_words(name):
    schema, expected = SCHEMAS[name]
    for part in schema.get("properties", {}).values():
        if "not_" in part:
            part["not"] = part.pop("not_")
    assert said(definition(schema)) == expected


VERSIONS = {
    "columns": (
        {"additionalPrinterColumns": [{"name": "", "type": "text", "format": "hex", "jsonPath": "a"}, {"name": "a"}]},
        [
            "spec.additionalPrinterColumns[0].name: Required value",
            'spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string',
            'spec.additionalPrinterColumns[0].format: Invalid value: "hex": must be one of byte,date,date-time,double,float,int32,int64,password',
            'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "a": must be a simple json path starting with .',
            "spec.additionalPrinterColumns[1].type: Required value: must be one of boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[1].JSONPath: Required value",
        ],
    ),
    "scale": (
        {
            "subresources": {
                "scale": {"specReplicasPath": ".status.a", "statusReplicasPath": "b", "labelSelectorPath": ".a"}
            }
        },
        [
            'spec.subresources.scale.specReplicasPath: Invalid value: ".status.a": should be a json path under .spec',
            'spec.subresources.scale.statusReplicasPath: Invalid value: "b": must be a simple json path starting with .',
            'spec.subresources.scale.labelSelectorPath: Invalid value: ".a": should be a json path under either .spec or .status',
        ],
    ),
    "selectable fields": (
        {
            "selectableFields": [
                {"jsonPath": ".spec.a"},
                {"jsonPath": ".spec.a"},
                {"jsonPath": ".spec.b"},
                {"jsonPath": ".spec"},
                {"jsonPath": ".spec['a']"},
                {},
            ]
        },
        [
            'spec.selectableFields[1].jsonPath: Duplicate value: ".spec.a"',
            'spec.selectableFields[2].jsonPath: Invalid value: ".spec.b": is an invalid path: does not refer to a valid field',
            'spec.selectableFields[3].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.',
            "spec.selectableFields[4].jsonPath: Invalid value: \".spec['a']\": is an invalid path: array notation is not allowed",
            "spec.selectableFields[5].jsonPath: Required value",
        ],
    ),
    "a deprecation": (
        {"deprecationWarning": "old"},
        ['spec.versions[0].deprecationWarning: Invalid value: "old": can only be set for deprecated versions'],
    ),
    "a name": (
        {"name": "V1"},
        [
            f'spec.versions[0].name: Invalid value: "V1": {LABEL}',
            f'spec.version: Invalid value: "V1": {LABEL}',
            'status.storedVersions: Invalid value: ["v1"]: must have the storage version V1',
        ],
    ),
    "what is not stored": (
        {"storage": False},
        [
            'spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]: must have exactly one version marked as storage version'
        ],
    ),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_version_is_refused_in_upstreams_words(name):
    version, expected = VERSIONS[name]
    found = [each for each in said(definition(**version)) if "missing from spec.versions" not in each]
    assert found == expected


def test_what_versions_say_differently_is_named_at_the_version():
    new = definition()
    other = {"name": "v2", "served": True, "storage": False, "schema": {"openAPIV3Schema": {"type": "string"}}}
    new["spec"]["versions"].append(other)
    assert said(new) == [
        'spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "string": must be object at the root'
    ]
    del other["schema"]
    assert said(new) == ["spec.versions[1].schema.openAPIV3Schema: Required value: schemas are required"]
    other |= {"name": "v1", "schema": new["spec"]["versions"][0]["schema"]}
    assert [each.rpartition(": ")[2] for each in said(new)] == ["must contain unique version names"]


def test_a_schema_with_status_says_nothing_at_its_root_that_the_status_would_miss():
    new = definition({"type": "object", "oneOf": [{"required": ["a"]}]}, subresources={"status": {}})
    [only] = said(new)
    assert only.startswith(
        f'{WHERE}: Invalid value: {{"ID":"","Schema":"","Ref":null,"Description":"","Type":"object",'
    )
    assert only.endswith(
        "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
        "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
        "XValidations] fields are allowed at the root of the schema if the status subresource is enabled"
    )


def established(**changes):
    old = definition(**changes)
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    return old


def test_an_established_kind_keeps_its_scope_and_name():
    old = established()
    new = copy.deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    new["spec"]["names"] |= {"kind": "Bar", "listKind": "BarList"}
    assert said(new, old) == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Bar": field is immutable',
    ]
    assert said(new, {**old, "status": {"storedVersions": ["v1"]}}) == []


def test_stored_versions_stay_in_the_definition():
    old = established()
    new = copy.deepcopy(old)
    new["spec"]["versions"][0]["name"] = "v2"
    new["status"]["storedVersions"] = ["v1", "v2"]
    assert said(new, old) == [
        (
            'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must '
            "remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from "
            "status.storedVersions"
        )
    ]
    new["status"]["storedVersions"] = []
    assert said(new, old) == ["status.storedVersions: Invalid value: []: must have at least one stored version"]


def test_groups_of_kubernetes_need_an_approval_which_is_not_asked_for_twice():
    new = definition(spec={"group": "a.k8s.io"})
    new["metadata"]["name"] = "foos.a.k8s.io"
    path, needed = (
        "metadata.annotations[api-approved.kubernetes.io]",
        'protected groups must have approval annotation "api-approved.kubernetes.io"',
    )
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    assert said(new) == [f"{path}: Required value: {needed}, {see}"]
    assert said(new, new) == []
    for text in ("unapproved, a trial", "https://github.com/a/b/pull/1"):
        new["metadata"]["annotations"] = {"api-approved.kubernetes.io": text}
        assert said(new) == []
    new["metadata"]["annotations"] = {"api-approved.kubernetes.io": "yes"}
    assert said(new) == [
        f'{path}: Invalid value: "yes": {needed} with either a URL or a reason starting with "unapproved", {see}'
    ]


def test_certificates_that_cannot_be_read_are_accepted_only_where_they_were():
    def converted(bundle):
        client = {"url": "https://a/b", "caBundle": base64.b64encode(bundle).decode()}
        return {
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
            }
        }

    wrong = definition(spec=converted(b"none"))
    assert said(wrong) == []
    assert said(wrong, established()) == [
        (
            'spec.conversion.webhookClientConfig.caBundle: Invalid value: "bm9uZQ==": unable to load root certificates: unable to parse '
            "bytes as PEM block"
        )
    ]
    assert said(wrong, established(spec=converted(b"also none"))) == []
    assert said(wrong, definition()) == []  # not established yet


def test_a_definition_that_kept_unknown_fields_may_go_on():
    old = established(spec={"preserveUnknownFields": True})
    assert said(old, old) == []


def test_a_mistake_is_said_once():
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k", "l"],
        "items": {"type": "object"},
    }
    assert said(definition(of_field(**keyed))) == [
        f'{WHERE}.properties[x].x-kubernetes-list-map-keys: Invalid value: ["k","l"]: entries must all be names of item properties'
    ]


def test_a_status_has_names_that_are_labels():
    new = definition()
    new["status"]["acceptedNames"] = {"plural": "Foos", "kind": "Foo"}
    assert [cause.path for cause in validate_definition_status(new)] == ["status.acceptedNames.plural"]


def test_formats_that_mean_nothing_are_warned_of_once():
    new = definition(
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "format": "mine"},
                "b": {"type": "integer", "format": "date"},
                "c": {"type": "string", "format": "date-time"},
            },
        }
    )
    assert definition_warnings(new) == ['unrecognized format "mine"', 'unrecognized format "date"']
    assert definition_warnings(new, new) == []


def test_an_unreadable_schema_is_said_once():
    found, causes = Structural.parse({"type": "object", "definitions": {"a": {}}}, WHERE)
    assert found is None
    assert [(cause.path, cause.message) for cause in causes] == [
        (WHERE, "Invalid value: \"\": OpenAPIV3Schema 'definitions' is not supported")
    ]


@pytest.mark.parametrize(
    ("schema", "said_of"),
    [
        (
            {"type": 1},
            "number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.type of type string",
        ),
        (
            of_field(type="array", items={"maxItems": "3"}),
            "string into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.items.maxItems of type int64",
        ),
        (of_field(enum="a"), "str"),
        ({"properties": {"a": []}}, "array into Go struct field"),
        (of_field(additionalProperties=3), "number into Go struct field"),
    ],
)
def test_what_is_no_schema_is_a_bad_request(schema, said_of):
    with pytest.raises(BadRequest, match="cannot unmarshal") as refused:
        validate_definition(definition(schema))
    assert said_of in refused.value.message
