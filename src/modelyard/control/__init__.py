"""The yard's control plane: what people asked for, what is so, and what follows."""
