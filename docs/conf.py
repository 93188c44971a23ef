"""Sphinx: `make site` calls it through build.py. Nothing is executed and nothing is fetched."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

import fedlib

project = "fedlib"
author = copyright = "The fedlib authors"
release = fedlib.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc"]

nb_execution_mode = "off"  # the committed outputs are shown
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]  # a widget without a state is shown as its text

default_role = "code"  # a single backtick in a docstring
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries = False  # or the sidebar, drawn anew for each page, takes as long as all the rest
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "fedlib"
html_favicon = "static/favicon.svg"
html_css_files = ["style.css"]
html_static_path = ["static"]
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}


def _inline(self: Any, node: nodes.Element) -> None:
    self.body.append(convert(node.astext().strip()))  # MathML, which browsers draw themselves
    raise nodes.SkipNode


def _block(self: Any, node: nodes.Element) -> None:
    self.body.append(f'<div class="math">{convert(node.astext().strip(), display="block")}</div>')
    raise nodes.SkipNode


def _skip(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what another library puts into a class of ours."""
    return True if not (getattr(member, "__module__", None) or "fedlib").startswith("fedlib") else None


def _access(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Headings of lists of pages say their level to a screen reader, and code too wide is scrolled by the keyboard."""
    for part in ("body", "furo_navigation_tree"):
        text = context.get(part, "").replace('role="heading"', 'role="heading" aria-level="2"')
        context[part] = text.replace("<pre>", '<pre tabindex="0">')


def setup(app: Any) -> None:
    app.connect("html-page-context", _access, priority=900)  # after the theme's own
    app.connect("autodoc-skip-member", _skip)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
