"""How each engine keeps what the facets promise. Backends never import each other."""
