"""Whether a device is well, as far as a small computation can tell.

    python -m modelyard.engines.probe

Runs as a task on the device that it is to judge, and sees no other. Where the machine has
accelerators it allocates and multiplies on the device with torch; elsewhere the device is a share
of this machine, and the same is done with numpy. A yard with better tools names them with
`yard up --probe`, such as `dcgmi diag -r 1`.
"""

from __future__ import annotations

import sys
from pathlib import Path

#: Large enough to touch many pages, small enough to be over in a moment.
ROWS = 1024
#: There when a machine has accelerators; torch takes seconds to say the same.
DRIVERS = ("/dev/nvidiactl", "/dev/kfd")


def main() -> int:
    """0 when the device computes what it should."""
    accelerated = any(Path(driver).exists() for driver in DRIVERS)
    problem = _with_torch() if accelerated else _with_numpy()
    if problem:
        sys.stderr.write(f"{problem}\n")
    return 1 if problem else 0


def _with_numpy() -> str:
    import numpy as np

    # Small whole numbers: every sum is exact, whatever the order of adding.
    left = np.arange(ROWS * ROWS, dtype=np.float64).reshape(ROWS, ROWS) % 7.0
    product = left @ left.T
    expected = np.einsum("ij,ij->i", left, left)
    return "" if np.array_equal(np.diagonal(product), expected) else "products are wrong"


def _with_torch() -> str:
    try:
        import torch
    except ImportError:
        return "torch is not installed: name another probe with 'yard up --probe'"
    if not torch.cuda.is_available():
        return "there is an accelerator here, and torch does not see it"
    left = torch.arange(ROWS * ROWS, device="cuda", dtype=torch.float64)
    left = left.reshape(ROWS, ROWS) % 7.0
    product, expected = left @ left.T, (left * left).sum(1)
    torch.cuda.synchronize()
    return "" if torch.equal(product.diagonal(), expected) else "products are wrong"


if __name__ == "__main__":
    sys.exit(main())
