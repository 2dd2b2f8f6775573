"""Generated inputs for every parser and route: a short version in the suite, a long one with `make fuzz`."""
