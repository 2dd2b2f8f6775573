"""One module per kind of channel: format a notice for the receiver and send it."""
