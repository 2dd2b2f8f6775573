"""Back up the embedded platform into one file, and restore it into an empty home."""
