"""How good and how versatile a library is."""
