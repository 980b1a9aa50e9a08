"""How fast each kernel is, as a share of what this machine can do at most, measured in the same run."""
