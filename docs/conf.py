"""The site of documents: `make docs` builds it into build/docs.

The tree of sources is the repository itself, so that a relative link of a page leads to the same page on GitHub, in an
editor and on the site. Why Sphinx, MyST and furo: decision 0054.
"""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_sphinx"), str(Path(__file__).parents[1])]

from lab.experiments.style import GRAPHICS  # noqa: E402

project = "keplab"
author = "the keplab authors"
version = release = version_of("keplab")
language = "en"

extensions = ["myst_parser", "pages"]
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**.md", "experiments/*/README.md", "examples/*/README.md", "tests/fidelity/README.md", "[acksl]*/**README.md"]
exclude_patterns = [".*", "**/.*", "**/__pycache__", "build", "runs", "docs/_sphinx", "*.egg-info"]

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence"]
suppress_warnings = ["myst.header"]  # a page may begin a level lower
nitpicky = True
smartquotes = False  # what is printed is what is typed

html_theme = "furo"
html_title = f"keplab {release}"
html_static_path = ["_sphinx/static"]
html_css_files = ["keplab.css"]
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
BRANDED = ("color-brand-primary", "color-brand-content")
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": dict.fromkeys(BRANDED, GRAPHICS["running"].light),
    "dark_css_variables": dict.fromkeys(BRANDED, GRAPHICS["running"].dark),
}
pygments_style = "sas"
highlight_language = "none"

linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_anchors_ignore_for_url = ["https://github.com/.*"]  # GitHub renders headings by script
