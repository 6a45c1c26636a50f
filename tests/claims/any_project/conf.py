project = "Bread"
extensions = ["myst_nb", "attnbook.claims"]
exclude_patterns = ["_build"]
