"""Strategies for documents: valid ones by a schema that is served, and what is put in place of their parts."""

import json

from hypothesis import strategies as st

DEEP = "@deep-{}@"
"""Stands for a value that many levels deep, which Python's own encoder cannot write."""

TEXTS = [
    "", " ", "a", "A", "a" * 64, "a" * 254, "a" * 5_000, "x" * 70_000, "0", "-1", "1", "65536", "9" * 5_000, "-" + "9" * 20, "1e3", "1e999",
    "1e-999", "0.0000000001", "1Ki", "1Gi", "-1Gi", "100m", "9Ei", "99999Ei", "1.", ".", "+", "0x10", "NaN", "Infinity", "5%", "101%", "-5%",
    "9999999999999999999%", "true", "null", "é", "日本", "🦆", "a\u0000b", "a\nb", "\u202e", "\ud800", "a/b", "/", "//", "../..", "..", "a/b/c",
    "example.com/a", "example.com/", "/a", "kubernetes.io/x", "a.b", ".a", "a..b", "-", "a-", "*", "*.example.com", "a b", "$(A)", "$$(", "%s", "{}",
    "{{", "[", "[[", "(", "a in (", "\\", "'", '"', "<script>", "10.0.0.1", "10.0.0.0/8", "10.0.0.0/33", "::1", "::/0", "fe80::1%eth0",
    "256.1.1.1", "01.1.1.1", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "10000-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01", "1h", "-1h", "1h1", "10000000h", "99999999999999999999s", "* * * * *",
    "*/0 * * * *", "0 0 31 2 *", "@every 1s", "@hourly", "TZ=UTC * * * * *", "60 * * * *", "0-59/99999999999999999999 * * * *", "Etc/UTC",
    "Mars/Olympus", "../etc/passwd", "AAEC", "AAE", "====", "v1", "apps/v1", "a/b/v1", "Pod", "pods", "metadata.name", ".spec.replicas",
    "$.x", ".a[?(@.b==1)]", ".a[*]", "..", "default", "fuzzed", "kube-system", "system:masters", "true && true", "true &&", "1 / 0 == 1",
    "object.spec", "[1,2].map(x, x * 2).size() > 0", "'a'.matches('(')", "'a'.matches('(a+)+$')", "self", "self.x", "has(object.a)",
    "device.driver", "quantity('1Gi')", "9" * 30 + " > 1", "((((((((((1))))))))))", "(" * 300, "-" * 300 + "1", "!" * 300 + "true", "a." * 300 + "b",
    "Object{}", "JSONPatch{op: 'add', path: '/a', value: 1}", "0-3,5", "3-0", "0-99999999999", "1,1", "0,", "IfNotPresent", "None", "Always",
]  # fmt: skip
NUMBERS = [
    0, 1, -1, 2, 3, 10, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40,
    0.0, -0.0, 0.5, 1.5, -1.5, 1e300, 5e-324, 3.0,
]  # fmt: skip
ODD = [
    None, True, False, [], {}, [None], [[]], [{}], [""], [0], {"": ""}, {"a": None}, {"a": {"b": []}}, ["a"] * 2, [None] * 300, ["a"] * 5_000,
    {f"k{i}": "" for i in range(300)}, DEEP.format(30), DEEP.format(100), DEEP.format(2_000), {"$patch": "delete"}, [{"$patch": "replace"}],
    {"key": "a", "operator": "In", "values": ["b"]}, {"matchLabels": {"a": "b"}}, {"matchExpressions": [{"key": "a", "operator": "x"}]},
    {"name": "a"}, [{"name": "a"}, {"name": "a"}], {"cpu": "1"}, {"cpu": -1}, {"type": "x"},
]  # fmt: skip
bad_values = st.one_of(st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.sampled_from(ODD))


class Schemas:
    """Schemas by name, as `/openapi/v3` serves them, references followed."""

    def __init__(self, documents):
        self._named, self._kinds = {}, {}
        for document in documents:
            for name, schema in document.get("components", {}).get("schemas", {}).items():
                self._named[name] = schema
                for kind in schema.get("x-kubernetes-group-version-kind", ()):
                    self._kinds[kind["group"], kind["version"], kind["kind"]] = schema

    def of(self, group, version, kind):
        """Return the schema of a kind; {} where none is served."""
        return self._kinds.get((group, version, kind), {})

    def followed(self, schema):
        """Return the schema with its reference followed."""
        schema = schema or {}
        for part in (schema, *schema.get("allOf", ())):
            if "$ref" in part:
                return self._named.get(part["$ref"].rpartition("/")[2], {})
        return schema


@st.composite
def values_of(draw, schemas, schema, depth=0):
    """A value that the schema allows, or at least its type."""
    schema = schemas.followed(schema)
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    kind = schema.get("type") or ("object" if "properties" in schema else "any")
    if schema.get("format") == "int-or-string" or "oneOf" in schema:
        return draw(st.sampled_from([0, 1, "1", "25%", "1Gi", "100m"]))
    match kind:
        case "string":
            if schema.get("format") == "date-time":
                return "2026-01-01T00:00:00Z"
            return draw(st.sampled_from(["a", "fuzzed", "1", "example.com/a", "AAEC"]))
        case "integer":
            low = schema.get("minimum", 0)
            return draw(st.integers(low, schema.get("maximum", low + 5)))
        case "number":
            return 1.5
        case "boolean":
            return draw(st.booleans())
        case "array":
            count = draw(st.integers(0, 2)) if depth < 5 else 0
            return [draw(values_of(schemas, schema.get("items"), depth + 1)) for _ in range(count)]
        case "object":
            if fields := schema.get("properties"):
                required = [name for name in schema.get("required", ()) if name in fields]
                chosen = draw(st.lists(st.sampled_from(sorted(fields)), max_size=3 if depth < 5 else 0, unique=True))
                names = dict.fromkeys((*required, *chosen)) if depth < 8 else {}
                return {name: draw(values_of(schemas, fields[name], depth + 1)) for name in names}
            return {"a": draw(values_of(schemas, schema.get("additionalProperties"), depth + 1))} if depth < 6 else {}
    return draw(st.sampled_from(["a", 1, {"a": 1}, []]))


@st.composite
def mutated(draw, schemas, schema, document):
    """The document with one to three of its parts replaced, added, taken away or repeated."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        _mutate(draw, schemas, schema, document)
    return document


def _mutate(draw, schemas, schema, document):
    holder, kind = document, schemas.followed(schema)
    while True:
        if isinstance(holder, dict):
            fields = kind.get("properties") or {}
            known = sorted({*holder, *fields}) or ["a"]
            key = draw(st.sampled_from(known)) if draw(st.integers(0, 19)) else draw(st.sampled_from(TEXTS[:30]))
            below = schemas.followed(fields.get(key) or kind.get("additionalProperties") or {})
            here = holder.get(key)
        else:
            key = draw(st.integers(0, len(holder) - 1)) if holder else None
            below = schemas.followed(kind.get("items") or {})
            here = holder[key] if holder else None
        # Further down two times in three: most fields are deep.
        if isinstance(here, dict | list) and here and draw(st.integers(0, 2)):
            holder, kind = here, below
            continue
        break
    match draw(st.integers(0, 9)):
        case 0:
            if isinstance(holder, dict):
                holder.pop(key, None)
            elif holder:
                del holder[key]
        case 1 | 2 | 3:
            _set(holder, key, draw(values_of(schemas, below)))
        case 4 if isinstance(holder, list) and holder:
            holder.extend([holder[0]] * draw(st.sampled_from([1, 2, 300])))
        case 5 if isinstance(here, dict):
            here[draw(st.sampled_from(TEXTS))] = draw(bad_values)
        case 6 if isinstance(below.get("properties"), dict):
            name = draw(st.sampled_from(sorted(below["properties"])))
            _set(holder, key, {name: draw(bad_values)})
        case _:
            _set(holder, key, draw(bad_values))


def _set(holder, key, value):
    if isinstance(holder, dict):
        holder[key] = value
    elif key is None:
        holder.append(value)
    else:
        holder[key] = value


def encoded(value):
    """Return the JSON of what these strategies make; numbers too large and texts that are none are written as they are."""
    text = json.dumps(value)
    for depth in (30, 100, 2_000):
        mark = f'"{DEEP.format(depth)}"'
        if mark in text:
            text = text.replace(mark, '{"a":' * depth + "1" + "}" * depth)
    return text.encode()
