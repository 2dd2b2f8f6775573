"""Dead letters of both kinds of queues behind one interface, and jobs over many of them."""
