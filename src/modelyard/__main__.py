"""`python -m modelyard` is `yard`."""

from modelyard.cli.main import main

if __name__ == "__main__":
    main()
