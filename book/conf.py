"""Sphinx's configuration of the book. Chapters are executed before Sphinx runs (`python -m attnbook.bookkit`)."""

import os

project = "アテンションは加重平均だ"
author = ""
copyright = ""
html_title = project

language = os.environ.get("ATTNBOOK_LANGUAGE", "ja")  # or: sphinx-build -D language=ko
locale_dirs = ["locales"]
gettext_compact = False  # one catalogue a chapter
gettext_uuid = False
gettext_additional_targets = ["index"]  # not maths, not code: a translated block of either breaks

extensions = [
    "myst_nb", "sphinxcontrib.bibtex", "attnbook.claims", "attnbook.bookkit", "attnbook.bookkit.execution_page",
    "attnbook.bookkit.terms", "attnbook.bookkit.lab_pages",
]  # fmt: skip
source_suffix = {".md": "myst-nb"}
exclude_patterns = ["_build", "locales", "records", "**/.ipynb_checkpoints"]
templates_path = ["_templates"]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_dmath_double_inline = False
myst_links_external_new_tab = False
smartquotes = False  # it breaks quotation marks beside ** in Korean

claims_source_language = "ja"
claims_ledger_json = "_build/ledger.json"  # of the source; a translation's is ledger.ko.json

nb_execution_mode = "off"  # what the pages show was executed before, by attnbook.bookkit
nb_merge_streams = True
nb_output_stderr = "show"  # and a lint refuses it

numfig = True
numfig_secnum_depth = 0
math_numfig = False
math_eqref_format = "({number})"

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_css_files = ["book.css", "plot.css"]
html_js_files = [("book.js", {"loading_method": "defer"})]
html_favicon = "_static/favicon.svg"
html_math_renderer = "mathml"
html_baseurl = os.environ.get("ATTNBOOK_BASE_URL", "")
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_last_updated_fmt = None
html_domain_indices = False
html_use_index = False
html_permalinks_icon = "¶"
html_context = {"default_mode": "auto"}
html_theme_options = {
    "home_page_in_toc": True,
    "show_navbar_depth": 1,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "use_repository_button": False,
    "use_issues_button": False,
    "use_edit_page_button": False,
    "navigation_with_keys": False,
    "primary_sidebar_end": [],  # the theme's place for advertisements
    "navbar_persistent": [],  # the sidebar has the search field
}
