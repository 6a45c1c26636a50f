"""Tests of attnbook.claims."""
