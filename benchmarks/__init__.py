"""Every proof and every figure of speed, cost and memory, each by one command."""
