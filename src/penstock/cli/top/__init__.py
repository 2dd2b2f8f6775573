"""`penstock top`: the queues of an environment, live. Only the module `top_screen` imports Textual."""
