// The page /docs: Swagger UI for the API of this broker.

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
  // The badge would send the address of this broker to a server on the Internet.
  validatorUrl: null,
});
