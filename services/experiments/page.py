"""One self-contained HTML page about a comparison. Opens without a network.

Pure: a document in, text out. There is no script. Everything that came from a cluster is escaped.
"""

from html import escape

from services.experiments.document import Comparison
from services.experiments.style import head
from services.experiments.views import pods_lines, provenance_lines, table


def page(made: Comparison) -> str:
    """Return the whole page."""
    heading, rows = table(made)
    parts = [head(made.title or made.scenario, made.about), f"<p class=result>{escape(made.result)}</p>"]
    parts.append("<div class=scroll><table><tr>" + "".join(f"<th>{escape(cell)}" for cell in heading))
    parts += ["<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows]
    parts.append("</table></div>")
    parts += [f"<p>{escape(line)}</p>" for line in pods_lines(made)]
    parts += [f"<p>{escape(name)}: {escape(what)}</p>" for name, what in provenance_lines(made)]
    return "\n".join([*parts, "</html>", ""])
