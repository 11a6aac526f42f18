"""Speed, and the slow reference it is measured against."""
