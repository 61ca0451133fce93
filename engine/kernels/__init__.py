"""The arithmetic of a step, one function a kernel: the plain twins that every faster backend is checked against."""
