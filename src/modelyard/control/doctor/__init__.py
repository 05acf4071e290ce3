"""Is this machine fit for a yard, and is the yard well? Findings with their fixes."""
