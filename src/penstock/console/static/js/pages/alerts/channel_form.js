// The form of a channel: which fields each kind has, and the channel that they describe.

export const KINDS = ["webhook", "slack", "teams", "email", "pagerduty", "alertmanager"];

const SECRET_URL = { key: "url", label: "URL", isSecret: true };
const LOGIN = [
  { key: "username", label: "User name" },
  { key: "password", label: "Password", isSecret: true },
];

/** The fields of each kind. A secret is never shown again: empty keeps its value. */
export const KIND_FIELDS = {
  webhook: [SECRET_URL, { key: "signingSecrets", label: "Signing secret", isSecret: true, isList: true, hint: "whsec_ and 24 to 64 bytes in base64" }],
  slack: [{ ...SECRET_URL, hint: "The URL of an incoming webhook" }],
  teams: [{ ...SECRET_URL, hint: "The URL of the workflow that posts to a channel" }],
  email: [
    { key: "host", label: "SMTP server" },
    { key: "port", label: "Port", isNumber: true, hint: "Empty: the default of the security" },
    { key: "security", label: "Security", options: ["starttls", "tls", "none"] },
    ...LOGIN,
    { key: "from", label: "From" },
    { key: "to", label: "To", isList: true, hint: "Addresses, separated by commas" },
  ],
  pagerduty: [
    { key: "routingKey", label: "Routing key", isSecret: true },
    { key: "url", label: "URL", hint: "Empty: the region US" },
  ],
  alertmanager: [{ key: "url", label: "URL", hint: "Without /api/v2/alerts" }, ...LOGIN],
};

/** Return the texts of the form for a channel, or for a new one. */
export function channelFormOf(channel = { name: "", kind: "webhook", enabled: true, settings: {} }) {
  const form = { name: channel.name, kind: channel.kind, enabled: channel.enabled };
  for (const [key, value] of Object.entries(channel.settings)) form[key] = Array.isArray(value) ? value.join(", ") : String(value ?? "");
  return form;
}

/** Return the channel that the form describes. Empty fields are left out. */
export function channelOf(form) {
  const channel = { name: form.name.trim(), kind: form.kind, enabled: form.enabled };
  for (const { key, isList, isNumber } of KIND_FIELDS[form.kind]) {
    const text = (form[key] ?? "").trim();
    if (text === "") continue;
    if (isList) channel[key] = text.split(",").map((item) => item.trim()).filter(Boolean);
    else channel[key] = isNumber && Number.isInteger(Number(text)) ? Number(text) : text;
  }
  return channel;
}
