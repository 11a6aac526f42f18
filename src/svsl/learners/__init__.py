"""Learners: each asks for episodes and is told their returns."""
