"""The book's Sphinx parts beside claims: chapter execution, maths, figures, lints, site."""
