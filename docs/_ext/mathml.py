"""Formulas as MathML, which browsers draw themselves: no script, no network.

docutils translates TeX; what it does not know, or would read wrongly, is an error of the build.
"""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def _translate(tex: str, display: bool) -> str:
    if re.search(r"\\[dt]?frac\d", tex):
        raise ValueError(f"{tex!r}: 12 is one number to docutils; write \\frac{{1}}{{2}}")
    return str(latex2mathml.tex2mathml(tex, as_block=display))


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line."""
    self.body.append(_translate(node.astext(), display=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """A formula of its own, which may be scrolled where the page is narrow."""
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(_translate(node.astext(), display=True))
    self.body.append("</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer and choose it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
