"""The kernel's log: who was killed for want of memory, who crashed and where, what the GPU driver reported."""
