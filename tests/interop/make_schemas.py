"""Adds the schemas of kinds to `apiserver_fake/registry/schema/schemas.json` from the Go types of the Kubernetes API.

    python tests/interop/make_schemas.py /usr/share/gocode/src networking.k8s.io/v1/Ingress /v1/Endpoints ...

The folder is where Debian's `golang-k8s-api-dev` and `golang-k8s-apimachinery-dev` put the sources. Schemas that are in
the table already stay as they are. A field's description is the first sentence of its comment.
"""

import json
import re
import sys
from pathlib import Path

TABLE = Path(__file__).parents[2] / "apiserver_fake/registry/schema/schemas.json"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SPECIAL = {
    "metav1.Time": {"format": "date-time", "type": "string"},
    "metav1.MicroTime": {"format": "date-time", "type": "string"},
    "resource.Quantity": {"format": "quantity", "oneOf": [{"type": "string"}, {"type": "number"}]},
    "intstr.IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "[]byte": {"type": "string"},
    "runtime.RawExtension": {"type": "object"},
}
PLAIN = {"string": "string", "bool": "boolean", "int32": "integer", "int64": "integer", "int": "integer",
         "uint32": "integer", "types.UID": "string", "float64": "number"}  # fmt: skip
FIELD = re.compile(r'^\s+(?:(\w+)\s+)?([*\[\]\w.]+)\s+`json:"([^"]*)"(.*)`')
HEAD = {
    "apiVersion": {
        "description": "APIVersion defines the versioned schema of this representation of an object.",
        "type": "string",
    },
    "kind": {
        "description": "Kind is a string value representing the REST resource this object represents.",
        "type": "string",
    },
}


def sentence(comments):
    """Return the first sentence of a comment without its markers."""
    text = " ".join(line for line in comments if not line.startswith("+")).strip()
    text = re.split(r"(?<=[a-z`'\")])\. |\n", text)[0].strip()
    return text if not text or text.endswith(".") else f"{text}."


class Package:
    """The types of one folder of Go files."""

    def __init__(self, folder):
        self.structs, self.named = {}, {}
        for file in sorted(folder.glob("*.go")):
            if file.name.endswith(("_test.go", ".pb.go")) or "zz_generated" in file.name:
                continue
            self._read(file.read_text().splitlines())

    def _read(self, lines):
        comments, current = [], None
        for line in lines:
            bare = line.strip()
            if bare.startswith("//"):
                comments.append(bare[2:].strip())
                continue
            if found := re.match(r"^type (\w+) struct \{", line):
                current = found[1]
                self.structs[current] = (sentence(comments), "+structType=atomic" in comments, [])
            elif found := re.match(r"^type (\w+) (=\s+)?([\w\[\].*]+)\s*(//.*)?$", line):
                self.named[found[1]] = found[3]
            elif line.startswith("}"):
                current = None
            elif current and (found := FIELD.match(line)):
                self.structs[current][2].append((found[2], found[3], found[4], list(comments)))
            if bare or current is None:
                comments = []


class Maker:
    """The components that one run adds."""

    def __init__(self, source, table):
        self._source, self._table, self._packages = source, table, {}
        self.made = {}

    def package(self, name):
        if name not in self._packages:
            self._packages[name] = Package(self._source / "k8s.io/api" / name)
        return self._packages[name]

    def reference(self, package, go_type):
        """Return the schema of a value of that type."""
        go_type = go_type.lstrip("*")
        if go_type in SPECIAL:
            return dict(SPECIAL[go_type])
        if go_type in PLAIN:
            return {"type": PLAIN[go_type]}
        if go_type.startswith("[]"):
            return {"type": "array", "items": self.reference(package, go_type[2:])}
        if found := re.match(r"^map\[[\w.]+\](.+)$", go_type):
            return {"type": "object", "additionalProperties": self.reference(package, found[1])}
        prefix, _, name = go_type.rpartition(".")
        if prefix == "metav1":
            return {"$ref": f"#/components/schemas/{META}.{name}"}
        if prefix in ("v1", "corev1", "api"):
            package = "core/v1"
        types = self.package(package)
        if name in types.named:
            return self.reference(package, types.named[name])
        self.component(package, name)
        return {"$ref": f"#/components/schemas/{self.name(package, name)}"}

    @staticmethod
    def name(package, name):
        return f"io.k8s.api.{package.replace('/', '.')}.{name}"

    def component(self, package, name):
        full = self.name(package, name)
        if full in self.made or full in self._table:
            return
        description, is_atomic, fields = self.package(package).structs[name]
        schema = self.made[full] = {"description": description, "properties": {}}
        required = []
        for go_type, tag, others, comments in fields:
            json_name, *options = tag.split(",")
            if go_type == "metav1.TypeMeta":
                schema["properties"].update(json.loads(json.dumps(HEAD)))
                continue
            if "inline" in options:
                found = self.reference(package, go_type)["$ref"].rpartition("/")[2]
                inner = self.made.get(found) or self._table[found]
                schema["properties"].update(inner["properties"])
                required += inner.get("required", [])
                continue
            found = self.reference(package, go_type)
            found["description"] = sentence(comments)
            markers = [line[1:] for line in comments if line.startswith("+")]
            keys = [mark.split("=")[1] for mark in markers if mark.startswith("listMapKey=")]
            for mark in markers:
                if mark.startswith("listType="):
                    found["x-kubernetes-list-type"] = mark.split("=")[1]
                elif mark in ("mapType=atomic", "structType=atomic"):
                    found["x-kubernetes-map-type"] = "atomic"
                elif mark.startswith("default=") and "ref(" not in mark:
                    found["default"] = json.loads(mark.split("=", 1)[1])
            if keys:
                found["x-kubernetes-list-map-keys"] = keys
            for key, word in (("patchStrategy", "strategy"), ("patchMergeKey", "merge-key")):
                if given := re.search(rf'{key}:"([^"]*)"', others):
                    found[f"x-kubernetes-patch-{word}"] = given[1]
            schema["properties"][json_name] = found
            is_free = "optional" in markers or {"omitempty", "omitzero"} & set(options)
            if not is_free or "required" in markers:
                required.append(json_name)
        schema["type"] = "object"
        if required:
            schema["required"] = sorted(set(required))
        if is_atomic:
            schema["x-kubernetes-map-type"] = "atomic"


def main(source: Path, wanted: list[str]) -> None:
    table = json.loads(TABLE.read_text())
    maker = Maker(source, table)
    for each in wanted:
        group, version, kind = each.split("/")
        package = f"{group.split('.')[0] or 'core'}/{version}"
        maker.component(package, kind)
        full = maker.name(package, kind)
        schema = maker.made.get(full) or table[full]
        schema["x-kubernetes-group-version-kind"] = [{"group": group, "kind": kind, "version": version}]
        table[each] = {"$ref": f"#/components/schemas/{full}"}
    table.update(maker.made)
    lines = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


main(Path(sys.argv[1]), sys.argv[2:])
