"""Rewrites `apiserver_fake/rest/zeros.json` from the Go types of the Kubernetes API.

    python tests/interop/make_zeros.py /usr/share/gocode/src > apiserver_fake/rest/zeros.json

For each type: the fields that Go's encoder writes whether they are set or not, and the fields below which there are
such. The folder is the one of `make_protobuf_fields.py`.
"""

import json
import sys
from pathlib import Path

from make_protobuf_fields import ROOTS, read, resolve

SCALARS = {"string": "", "int": 0, "bool": False, "double": 0, "quantity": "0", "int-or-string": 0, "duration": "0s"}
NAMED = frozenset(('""', "0", "false"))
VALIDATED = frozenset(("meta.OwnerReference", "meta.ManagedFieldsEntry", "meta.LabelSelectorRequirement"))
"""Types whose fields are never missing."""


def entry(name, go_type, tag, structs, named):
    """`[JSON name, zero, type, container]`: zero is None where nothing is written, "{}" for a struct of its zeros."""
    json_name, *options = tag.split(",")
    pointer, container, of = resolve(name.split(".")[0], go_type, structs, named)
    is_struct = of in structs and not container
    zero = None
    if pointer and not {"omitempty", "omitzero"} & set(options):
        zero = "null"
    elif not pointer and "omitzero" not in options:
        if is_struct:
            zero = "{}"
        elif of in ("time", "microtime"):
            zero = "null" if not container else None
        elif "omitempty" not in options:
            zero = "null" if container or of in ("bytes", "json", "texts") else json.dumps(SCALARS[of])
        elif of in ("quantity", "int-or-string", "duration") and not container:
            zero = json.dumps(SCALARS[of])
    return json_name, zero, of if of in structs else "", container, "inline" in options


def main(source: Path) -> None:
    structs, named = read(source)
    types, waiting = {}, list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in types or name in VALIDATED:
            continue
        fields = []
        for _, go_type, tag in structs[name]:
            found = entry(name, go_type, tag, structs, named)
            if found[4]:
                fields += [entry(found[2], t, g, structs, named) for _, t, g in structs[found[2]]]
            else:
                fields.append(found)
        types[name] = fields
        waiting += [of for _, _, of, _, _ in fields if of]
    reported, waiting = set(), [of for fields in types.values() for n, _, of, *_ in fields if n == "status" and of]
    while waiting:
        name = waiting.pop()
        if name not in reported:
            reported.add(name)
            waiting += [of for *_, of, _, _ in types.get(name, ()) if of]
    for name in types.keys() - reported - set(ROOTS):
        # What a spec needs is refused where it is missing, and so never is.
        types[name] = [[n, None if zero in NAMED else zero, *more] for n, zero, *more in types[name]]
    needed = {name for name, fields in types.items() if any(zero is not None for _, zero, _, _, _ in fields)}
    grown = True
    while grown:
        more = {n for n, fs in types.items() if n not in needed and any(of in needed for _, _, of, _, _ in fs)}
        needed |= more
        grown = bool(more)
    lines = []
    for name in sorted(needed):
        fields = [[n, zero, of if of in needed else "", how] for n, zero, of, how, _ in types[name]]
        lines.append(f"{json.dumps(name)}: {json.dumps([f for f in fields if f[1] is not None or f[2]])}")
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
