"""How Sphinx builds the site: run by ``docs/_site/build.py``, which `make docs` calls."""

import sys
from pathlib import Path

import dpglm

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "dpglm"
author = "The dpglm authors"
copyright = author
version = release = dpglm.__version__
root_doc = "index"

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "linked_names",
]
templates_path = []
suppress_warnings = ["config.cache"]

# Markdown pages have links to headings, as repository viewers make them.
myst_heading_anchors = 4
myst_links_external_new_tab = False

# API pages are written by ``api_pages``.
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
autodoc_typehints = "none"  # numpydoc's parameters have them, in words
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
add_module_names = False
python_display_short_literal_types = True
toc_object_entries = False  # API pages have a heading for each name

sphinx_gallery_conf = {
    "examples_dirs": [str(Path(__file__).parent / "gallery")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 60,
    "write_computation_times": False,
    "show_api_usage": False,
    "remove_config_comments": True,
    "plot_gallery": True,
    "image_scrapers": ("matplotlib", "gallery_pictures.pictures"),
}

html_theme = "furo"
html_title = "dpglm"
html_static_path = [str(Path(__file__).parent / "_site" / "static")]
html_css_files = ["dpglm.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
highlight_language = "none"  # where none is named, a block holds formulas or output
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_prompt_text = ">>> |... |$ "
copybutton_prompt_is_regexp = False
