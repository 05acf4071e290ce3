"""Policies that are trained: the DL² scheduler, its setting, its training and its weights."""
