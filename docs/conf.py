"""Sphinx configuration: `make docs` builds docs/_build/html, without a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]
os.environ.setdefault("OMP_NUM_THREADS", "2")  # the examples are small

from finemorphs import __version__  # noqa: E402

project = "finemorphs"
author = "the finemorphs developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "layers",
]
exclude_patterns = [
    "_build",
    "_templates",
    "sg_execution_times.rst",
    "gallery/sg_execution_times.rst",
]

templates_path = ["_templates"]
html_theme = "furo"
html_title = f"finemorphs {__version__}"
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc sections have the types
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 1e9,
    "abort_on_example_error": True,
    "capture_repr": (),
}

linkcheck_anchors = False
linkcheck_timeout = 20
