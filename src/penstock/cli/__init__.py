"""The command line: parse arguments, call the packages below, print the result. It holds no other logic."""
