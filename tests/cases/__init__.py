"""Inputs that broke other libraries, from public threads: each with its neighbours, for every implementation."""
