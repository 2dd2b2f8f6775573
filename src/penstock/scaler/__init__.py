"""KEDA's external scaler: a gRPC server that asks a broker how many workers a queue needs.

It keeps no state and has no rights of its own: each trigger of KEDA brings a token of the broker. grpcio is
imported here alone, so that nothing else needs it.
"""
