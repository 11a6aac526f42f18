"""Everything that is displayed: figures, videos, the web page, progress, tables."""
