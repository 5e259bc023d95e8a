"""How the documentation site is built, by ``make docs``: offline, and every warning is an error."""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from murk import __version__

# Pages are millions of objects that stay: to look through them less often saves a sixth of the time, and no memory.
gc.set_threshold(200_000, 20, 50)

project = "Murk"
version = release = __version__
html_title = "Murk"
html_theme = "furo"  # system fonts, light and dark, phone and desktop; nothing from other hosts
html_static_path = ["_static"]
html_css_files = ["murk.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}

extensions = [
    "myst_parser",  # pages are Markdown, which reads as well without the site
    "sphinx.ext.autodoc",
    "sphinx_click",
    "tools.site.mathml",
    "tools.site.notebooks",
    "tools.site.reference",
    "tools.site.self_contained",
    "tools.site.tables",
]
exclude_patterns = ["_static"]
nitpicky = True  # a reference that leads nowhere is a warning
smartquotes = False  # X'X and --log mean what they say
html_math_renderer = "mathml"
myst_heading_anchors = 4  # headings are link targets, as on a forge
myst_fence_as_directive = ["math"]  # a block of formulas, which a forge shows, too

# In docstrings, single backticks name something that the reference has.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
