"""Writes the widths of integers into `schemas.json`, and `go_types.json`: how Go calls what a schema does not name.

    python tests/interop/make_go_types.py /usr/share/gocode/src

The folder is where Debian's `golang-k8s-api-dev` and `golang-k8s-apimachinery-dev` put the sources. An entry of
`go_types.json` is `{struct: {"types": {member: Go's type}, "within": {member: embedded struct}}}`, for components by name:
`types` has what the schema does not say, `within` what Go's JSON decoder puts before members of embedded structs.
"""

import json
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "apiserver_fake/registry/schema"
TABLE, TYPES = FOLDER / "schemas.json", FOLDER / "go_types.json"
FIELD = re.compile(r'^\s+(?:(\w+)\s+)?([*\[\]\w.]+)\s+`[^`]*json:"([^"]*)"')
PLAIN = ("string", "bool", "int32", "int64", "int", "uint32", "uint64", "float64", "byte", "any", "interface")
FORMATS = {"int32": "int32", "int64": "int64", "int": "int64", "uint32": "int64", "uint64": "int64"}
WIDE = {"user", "defaultUser", "maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties",
        "bindingGeneration", "generation", "observedGeneration"}  # fmt: skip
"""Members of 64 bits among those of types that the packages do not have: of proposals, and of servers' own groups."""
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
FOLDERS = {
    "io.k8s.api.": "k8s.io/api",
    META[:-3]: "k8s.io/apimachinery/pkg/apis/meta",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.": "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions",
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.": "k8s.io/kube-aggregator/pkg/apis/apiregistration",
}


def structs(folder):
    """Return the structs of a folder of Go files: `{name: [(name of the field, type, JSON name, options)]}`."""
    found, named = {}, {}
    for file in sorted(folder.glob("*.go")):
        if file.name.endswith(("_test.go", ".pb.go")) or "zz_generated" in file.name:
            continue
        current = None
        for line in file.read_text().splitlines():
            if head := re.match(r"^type (\w+) struct \{", line):
                current = found.setdefault(head[1], [])
            elif head := re.match(r"^type (\w+) (=\s+)?([\w\[\].*]+)\s*(//.*)?$", line):
                named[head[1]] = head[3]
            elif line.startswith("}"):
                current = None
            elif current is not None and (field := FIELD.match(line)):
                json_name, *options = field[3].split(",")
                current.append((field[1], field[2], json_name, options))
    return found, named


def spelt(go_type, package, named):
    """Return the type as Go's reflection spells it."""
    if go_type.startswith("[]"):
        return f"[]{spelt(go_type[2:], package, named)}"
    if found := re.match(r"^map\[([\w.]+)\](.+)$", go_type):
        return f"map[{spelt(found[1], package, named)}]{spelt(found[2], package, named)}"
    star = "*" if go_type.startswith("*") else ""
    go_type = go_type.removeprefix("*")
    if go_type in PLAIN:
        return star + {"byte": "uint8", "any": "interface {}"}.get(go_type, go_type)
    if "." in go_type:
        prefix, name = go_type.split(".")
        return f"{star}{'v1' if prefix in ('metav1', 'corev1', 'api') else prefix}.{name}"
    return f"{star}{package}.{go_type}"


def derived(schema):
    """Return the type that is read off a schema; "" for none."""
    if "$ref" in schema:
        *_, version, name = schema["$ref"].rpartition("/")[2].split(".")
        return f"{version}.{name}"
    form, kind = schema.get("format"), schema.get("type")
    if form in ("date-time", "quantity", "int-or-string"):
        return {"date-time": "v1.Time", "quantity": "resource.Quantity", "int-or-string": "intstr.IntOrString"}[form]
    if kind == "array":
        return f"[]{derived(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map[string]{derived(schema['additionalProperties'])}"
    return {"string": "string", "boolean": "bool", "integer": form or "int32", "number": "float64"}.get(kind, "")


def with_formats(schema, go_type, named):
    """Put the widths of integers into a schema, whatever it holds."""
    while go_type.removeprefix("*") in named:
        go_type = named[go_type.removeprefix("*")]
    go_type = go_type.removeprefix("*")
    if go_type.startswith("[]") and schema.get("type") == "array":
        with_formats(schema["items"], go_type[2:], named)
    elif go_type.startswith("map[") and isinstance(schema.get("additionalProperties"), dict):
        with_formats(schema["additionalProperties"], go_type.partition("]")[2], named)
    elif schema.get("type") == "integer" and go_type in FORMATS:
        schema["format"] = FORMATS[go_type]


def members(name, found, index_path=()):
    """Yield `(JSON name, type, indexes of the fields that lead there)` of a struct, those of embedded ones included."""
    for index, (_, go_type, json_name, options) in enumerate(found[name]):
        if not json_name and "inline" in options:
            if go_type in found:
                yield from members(go_type, found, (*index_path, (index, name)))
            continue
        if json_name and json_name != "-":
            yield json_name, go_type, (*index_path, (index, name))


def within(steps, found):
    """Return what Go's decoder puts before a member's name: the embedded structs that lead there."""
    return [found[struct][place][0] or found[struct][place][1].rpartition(".")[2] for place, struct in steps[:-1]]


def fill(schema, width):
    """Give the integers in a schema that have no width that one."""
    for name, member in schema.get("properties", {}).items():
        if member.get("type") == "integer":
            member.setdefault("format", "int64" if name in WIDE else width)
        fill(member, width)


def main(source):
    """Fill both tables."""
    table = json.loads(TABLE.read_text())
    types = {}
    packages = {}
    for full, schema in table.items():
        prefix = next((each for each in FOLDERS if full.startswith(each)), "")
        if "/" in full or not prefix:
            fill(schema, "int32")
            continue
        where, _, name = full[len(prefix) :].rpartition(".")
        folder = source / FOLDERS[prefix] / where.replace(".", "/")
        if folder not in packages:
            packages[folder] = structs(folder) if folder.exists() else ({}, {})
        found, named = packages[folder]
        if name not in found:
            fill(schema, "int32")
            continue
        package = folder.name
        entry = {}
        for json_name, go_type, steps in members(name, found):
            member = schema.get("properties", {}).get(json_name)
            if member is None:
                continue
            with_formats(member, go_type, named)
            said = spelt(go_type, package, named).removeprefix("*")
            if said != derived(member):
                entry.setdefault("types", {})[json_name] = said
            if before := within(steps, found):
                entry.setdefault("within", {})[json_name] = ".".join(before)
        fill(schema, "int32")
        if entry:
            types[full] = entry
    lines = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    lines = [f"{json.dumps(name)}: {json.dumps(types[name], sort_keys=True)}" for name in sorted(types)]
    TYPES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


main(Path(sys.argv[1]))
