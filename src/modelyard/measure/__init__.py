"""What was measured: published rows and own runs, how well they are predicted, calibration."""
