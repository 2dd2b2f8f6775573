"""Export spans and metrics with OpenTelemetry's protocol, if its standard variables name an endpoint.

`configuration` reads the variables and imports nothing of OpenTelemetry. The other modules import its SDK;
`load_exporters` imports them only if there is something to export.
"""
