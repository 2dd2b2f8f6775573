"""Evaluation of rules: measurements, conditions, states, and the evaluator that runs every 30 seconds."""
