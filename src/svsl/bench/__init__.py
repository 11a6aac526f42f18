"""Benchmarks, and the slow reference they compare with."""
