"""The facts: plain frozen values that say how a server was at one moment, and where each number comes from."""
