"""Tests that a user runs on a module of their own."""
