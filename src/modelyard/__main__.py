"""`python -m modelyard` is `yard`."""

from modelyard.cli.start import main

if __name__ == "__main__":
    main()
