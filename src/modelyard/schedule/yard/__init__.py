"""The policy `yard`: see `policy.py`."""
