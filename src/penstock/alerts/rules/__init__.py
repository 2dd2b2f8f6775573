"""Alert rules: their fields, types and files."""
