"""How gradients of several workers become one update. One file for each way."""
