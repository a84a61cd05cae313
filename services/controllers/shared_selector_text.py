"""Label selectors as Go prints them in messages: `&LabelSelector{MatchLabels:map[string]string{app: web,},…}`."""

from services.api.meta import LabelSelector


def go_text(selector: LabelSelector | None) -> str:
    """Return the text that Go's `%v` prints for a `*metav1.LabelSelector`."""
    if selector is None:
        return "nil"
    labels = "".join(f"{name}: {value}," for name, value in sorted(selector.match_labels.items()))
    terms = ""
    for requirement in selector.match_expressions:
        values = " ".join(requirement.values)
        terms += (
            f"LabelSelectorRequirement{{Key:{requirement.key},Operator:{requirement.operator},Values:[{values}],}},"
        )
    expressions = f"[]LabelSelectorRequirement{{{terms}}}"
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:{expressions},}}"
