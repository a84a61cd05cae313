"""A comparison as HTML without style and script, embedded in the single-file page for viewers without
scripts. Pure.

All text from a cluster is escaped.
"""

from collections.abc import Sequence
from html import escape

from lab.experiments.document import Comparison
from lab.experiments.page_document import note_text, paragraphs
from lab.experiments.views import folded_lines, pods_lines, problems, provenance_lines, switch_rows, table

PROBLEMS_MAX = 40


def plain(comparison: Comparison) -> str:
    """Return the headline, the tables and the provenance."""
    heading, rows = table(comparison)
    switches = switch_rows(comparison)
    pods = pods_lines(comparison)
    parts = [
        f"<h1>{escape(comparison.title or comparison.scenario)}</h1>",
        f"<p><b>{escape(comparison.result)}</b></p>",
        f"<p>{escape(note_text(comparison))}</p>",
        *(f"<p>{escape(each)}</p>" for each in paragraphs(comparison.about)),
        table_html("What differs" if len(comparison.arms) > 1 else "Figures", heading, rows) if rows else "",
        *(f"<p>{escape(line)}</p>" for line in folded_lines(comparison)),
        f"<h2>Pod by pod</h2><p>{escape(pods[0])}</p>{list_html(pods[1:])}" if pods else "",
        table_html("Switches", ["switch", "default", *(arm.name for arm in comparison.arms)], switches)
        if switches
        else "",
        f"<h2>What went wrong</h2>{list_html(wrong[:PROBLEMS_MAX])}" if (wrong := problems(comparison)) else "",
        "<h2>Where this comes from</h2>",
        list_html([f"{name}: {what}" for name, what in provenance_lines(comparison)]),
        f"<pre>{escape(comparison.provenance.command)}</pre>",
    ]
    return "".join(parts)


def list_html(lines: Sequence[str]) -> str:
    """Return lines as an HTML list; empty if there are none."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def table_html(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a heading and a table of texts as HTML."""
    top = "".join(f"<th>{escape(name)}</th>" for name in heading)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<h2>{escape(title)}</h2><table><tr>{top}</tr>{body}</table>"
