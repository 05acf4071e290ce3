"""Will it fit, on how many of which devices, how long, for how much, and at what loss?"""
