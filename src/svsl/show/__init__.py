"""What a person looks at: figures, videos, the web page, progress, tables."""
