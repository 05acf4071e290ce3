"""What will happen next on a yard, if nobody comes and nothing fails."""
