"""The Sphinx extension of the site: generated text is put into its page, and the site can be opened from disk.

A page says `<!-- generated: NAME -->` where the text of `reference.GENERATED[NAME]` or `indexes.GENERATED[NAME]`
belongs, and `<!-- contents: * -->` where the site's contents of these pages (globs, relative to the page) belong. On
GitHub both are invisible.
"""

import re
import shutil
from pathlib import Path

from indexes import GENERATED as INDEXES
from reference import GENERATED as OF_REFERENCE
from sphinx.application import Sphinx

GENERATED = {**OF_REFERENCE, **INDEXES}
MARK = re.compile(r"<!-- generated: ([a-z-]+) -->")
CONTENTS = re.compile(r"<!-- contents: ([^>]+?) -->")
PICTURES = Path("docs") / "pictures"
FRONT = """<!doctype html><meta charset="utf-8"><title>keplab</title>
<meta http-equiv="refresh" content="0; url={page}"><a href="{page}">keplab</a>
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", fill)
    app.connect("build-finished", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def fill(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put generated text and contents in place of their marks. Raises: KeyError for a mark that nothing generates."""
    text = MARK.sub(lambda mark: GENERATED[mark[1]](), source[0])
    source[0] = CONTENTS.sub(_contents, text)


def _contents(mark: re.Match[str]) -> str:
    pages = "\n".join(mark[1].split())
    return f"```{{toctree}}\n:hidden:\n:glob:\n\n{pages}\n```"


def complete(app: Sphinx, exception: Exception | None) -> None:
    """Write the front page, which leads to docs/index, and the pictures that pages name in HTML."""
    if exception is None and app.builder.format == "html":
        out = Path(app.outdir)
        (out / "index.html").write_text(FRONT.format(page=f"{app.config.root_doc}.html"))
        shutil.copytree(Path(app.srcdir) / PICTURES, out / PICTURES, dirs_exist_ok=True)
