"""The supervisor: start parts in order, watch them, restart them, stop them."""
