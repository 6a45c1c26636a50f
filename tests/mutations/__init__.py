"""Mutations: one thing broken at a time, each of which a claim must notice. `nox -s mutate` runs them all."""
