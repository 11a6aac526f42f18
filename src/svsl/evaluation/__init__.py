"""Metrics of a library on a task, and which components it needs."""
