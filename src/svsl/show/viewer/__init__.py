"""The web page of `svsl view`: choose a context and watch the skills for it."""
