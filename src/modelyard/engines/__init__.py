"""What starts processes: this machine, Ray or Kubernetes, behind one small interface."""
