"""Learners: each proposes episodes and learns from their returns."""
