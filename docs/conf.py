"""Configuration of the documentation site: `python -m sphinx -W docs docs/_build`."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "vlmgym"
copyright = "the vlmgym developers, Apache-2.0"
version = release = version_of("vlmgym")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
default_role = "code"
myst_heading_anchors = 4

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = "vlmgym"
html_static_path: list[str] = []
