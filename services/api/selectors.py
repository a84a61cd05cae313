"""Label and field selectors: parse by hand in linear time (X-FUZZ, V8), then match."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.api.errors import BadRequest
from services.api.meta import LabelSelector

TERMS_MAX = 64
VALUE_LENGTH_MAX = 1024


@dataclass(frozen=True)
class Term:
    """A term `key op values`; op is in, notin, exists, missing, gt or lt."""

    key: str
    op: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy the term; `notin` also holds for an absent key."""
        match self.op:
            case "in":
                return self.key in labels and labels[self.key] in self.values
            case "notin":
                return self.key not in labels or labels[self.key] not in self.values
            case "exists":
                return self.key in labels
            case "gt" | "lt":
                return self.key in labels and _is_beyond(labels[self.key], self.op, self.values[0])
        return self.key not in labels


def _is_beyond(value: str, op: str, bound: str) -> bool:
    try:
        return int(value) > int(bound) if op == "gt" else int(value) < int(bound)
    except ValueError:
        return False


@dataclass(frozen=True)
class Selector:
    """A conjunction of terms; without terms it matches everything."""

    terms: tuple[Term, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all terms hold."""
        return all(term.matches(labels) for term in self.terms)


EVERYTHING = Selector()


_SIGNS = (("!=", "notin"), ("==", "in"), ("=", "in"))
_ORDERS = ((">", "gt"), ("<", "lt"))


def _split_top(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return parts


_LABEL_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./")


def _label_key(text: str, whole: str) -> str:
    key = text.strip()
    if not key or not set(key) <= _LABEL_CHARS:
        raise BadRequest(f"unable to parse requirement: invalid label key {key!r} in selector {whole!r}")
    return key


def _values(text: str, whole: str) -> tuple[str, ...]:
    text = text.strip()
    if not text.startswith("("):
        raise BadRequest(f"unable to parse requirement: found {text!r}, expected: '(' in selector {whole!r}")
    if not text.endswith(")"):
        raise BadRequest(f"unable to parse requirement: found '', expected: ',' or ')' in selector {whole!r}")
    return tuple(v.strip() for v in text[1:-1].split(","))


def _label_term(part: str, whole: str) -> Term:
    part = part.strip()
    if part.startswith("!"):
        return Term(_label_key(part[1:], whole), "missing")
    for sign, op in _SIGNS:
        if sign in part:
            key, _, value = part.partition(sign)
            return Term(_label_key(key, whole), op, (value.strip(),))
    for sign, op in _ORDERS:
        if sign in part:
            key, _, value = (each.strip() for each in part.partition(sign))
            if not value.removeprefix("-").isdecimal() or len(value) > 19:
                raise BadRequest(
                    f"unable to parse requirement: values[0][{key}]: Invalid value: {value[:80]!r}: "
                    "for 'Gt', 'Lt' operators, the value must be an integer"
                )
            return Term(_label_key(key, whole), op, (value,))
    words = part.split(None, 1)
    if len(words) == 2:
        op_word = words[1].split("(")[0].strip()
        if op_word in ("in", "notin"):
            return Term(_label_key(words[0], whole), op_word, _values(words[1][len(op_word) :], whole))
        raise BadRequest(
            f"unable to parse requirement: found {op_word!r}, expected: in, notin, =, ==, !=, gt, lt in {whole!r}"
        )
    return Term(_label_key(part, whole), "exists")


def parse_label_selector(text: str) -> Selector:
    """Parse `a=b,c!=d,e in (f,g),!h,i,j>1`.

    Raises: BadRequest naming the selector when it is malformed or beyond 64 terms.
    """
    if not text.strip():
        return EVERYTHING
    parts = _split_top(text)
    if len(parts) > TERMS_MAX:
        raise BadRequest(f"selector has {len(parts)} terms, at most {TERMS_MAX} are allowed")
    terms = tuple(_label_term(part, text) for part in parts)
    for term in terms:
        for value in term.values:
            if len(value) > VALUE_LENGTH_MAX or not set(value) <= _LABEL_CHARS:
                raise BadRequest(f"unable to parse requirement: invalid label value {value[:80]!r} in selector")
    return Selector(terms)


def parse_field_selector(text: str) -> Selector:
    """Parse `metadata.name=x,status.phase!=Running`; an empty value is legal.

    Raises: BadRequest naming the part that has no operator.
    """
    terms = []
    for part in text.split(",") if text else ():
        for sign, op in _SIGNS:
            if sign in part:
                key, _, value = part.partition(sign)
                terms.append(Term(key.strip(), op, (value,)))
                break
        else:
            raise BadRequest(f"invalid field selector {text!r}; can't understand {part!r}")
    if len(terms) > TERMS_MAX:
        raise BadRequest(f"selector has {len(terms)} terms, at most {TERMS_MAX} are allowed")
    return Selector(tuple(terms))


def from_label_selector(selector: LabelSelector | None) -> Selector:
    """Return the matcher of an object's `selector` field.

    Raises: ValueError for an unknown operator. The caller must handle a missing selector (None): upstream it
    selects nothing.
    """
    if selector is None:
        return EVERYTHING
    ops = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "missing"}
    terms = [Term(k, "in", (v,)) for k, v in selector.match_labels.items()]
    for requirement in selector.match_expressions:
        if requirement.operator not in ops:
            raise ValueError(f"{requirement.operator!r} is not a valid label selector operator")
        terms.append(Term(requirement.key, ops[requirement.operator], requirement.values))
    return Selector(tuple(terms))


def selector_text(selector: LabelSelector | None) -> str:
    """Return an object's `selector` in the form of a query (`app=web,tier in (a,b)`)."""
    if selector is None:
        return ""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for term in selector.match_expressions:
        values = ",".join(sorted(term.values))
        forms = {"In": f"{term.key} in ({values})", "NotIn": f"{term.key} notin ({values})", "Exists": term.key}
        parts.append(forms.get(term.operator, f"!{term.key}"))
    return ",".join(parts)
