"""What was measured: published rows and one's own runs, how well they are predicted, calibration."""
