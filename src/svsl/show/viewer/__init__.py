"""The web page on which a context is chosen and the skills for it are watched (`svsl view`)."""
