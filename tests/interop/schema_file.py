"""How the files of schemas are laid out: a property a line, so that one field more is one line more."""

import json


def laid_out(table):
    """Return the text of a table of schemas: a line a schema, and below it a line for each of its properties."""
    return "{\n" + ",\n".join(_schema(name, schema) for name, schema in table.items()) + "\n}\n"


def _schema(name, schema):
    head = {key: value for key, value in schema.items() if key != "properties"}
    text = f"{_json(name)}: {_json(head)}"
    if "properties" not in schema:
        return text
    properties = ",\n".join(f"  {_json(each)}: {_json(value)}" for each, value in schema["properties"].items())
    opening = text[:-1] + (", " if head else "") + '"properties": {'
    return f"{opening}\n{properties}\n}}}}" if properties else f"{opening}}}}}"


def _json(value):
    return json.dumps(value, ensure_ascii=False)
