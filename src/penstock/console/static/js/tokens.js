// The dialog of administrators: list, create, rotate and revoke the tokens of the selected environment.

import { createToken, listTokens, revokeToken, rotateToken } from "./api.js";
import { formatDate } from "./format.js";

const ADMIN_SCOPE = "admin";
const OVERLAP_S = 86_400;
const DAY_S = 86_400;
const SCOPE_MEANINGS = {
  read: "queues, metrics and status",
  "read:payload": "payloads of messages and tasks",
  produce: "push and enqueue",
  consume: "pop, dequeue and ack",
  operate: "dead letters, pauses, groups",
  configure: "queues, alerts and limits",
  admin: "tokens and audit",
};

const byId = (id) => document.getElementById(id);
const dialog = byId("tokens");
const form = byId("token-form");

/** Show the button that opens the dialog if the caller of this session may manage tokens. */
export function offerTokens(session) {
  const scopes = session?.scopes ?? [];
  byId("open-tokens").hidden = !scopes.includes(ADMIN_SCOPE);
  byId("token-scopes").replaceChildren(...scopes.map(createScopeChoice));
}

function createScopeChoice(scope) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "checkbox";
  input.name = "scopes";
  input.value = scope;
  const meaning = document.createElement("span");
  meaning.textContent = SCOPE_MEANINGS[scope] ?? "";
  label.append(input, scope, meaning);
  return label;
}

/** Do the work and show the tokens as they are then, or what went wrong. */
async function run(work) {
  showProblem("");
  try {
    await work();
    showTokens((await listTokens()).tokens);
  } catch (error) {
    showProblem(error.message);
  }
}

function showProblem(text) {
  byId("tokens-problem").textContent = text;
  byId("tokens-problem").hidden = !text;
}

function showTokens(tokens) {
  dialog.querySelector("table").hidden = tokens.length === 0;
  byId("no-tokens").hidden = tokens.length > 0;
  dialog.querySelector("tbody").replaceChildren(...tokens.map(createRow));
}

function createRow(token) {
  const prefixes = document.createElement("code");
  prefixes.textContent = token.secrets.map(({ prefix }) => `${prefix}…`).join(" ");
  const actions = document.createElement("span");
  if (token.state === "active") actions.append(createButton("Rotate", () => rotate(token)), " ");
  actions.append(createButton("Revoke", () => revoke(token)));
  const expiry = token.state === "expired" ? "expired" : formatDate(token.expiresAt, "never");
  const cells = [[token.name, document.createElement("br"), prefixes], [describeRights(token)], [expiry]];
  const row = document.createElement("tr");
  for (const content of [...cells, [formatDate(token.lastUsedAt, "never")], [actions]]) {
    const cell = document.createElement("td");
    cell.append(...content);
    row.append(cell);
  }
  return row;
}

function createButton(text, onClick) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.addEventListener("click", onClick);
  return button;
}

function describeRights({ platformAdmin, scopes, queues, groups }) {
  if (platformAdmin) return "everything, in every environment";
  const limits = [
    ...(queues ? [`queues ${queues.join(", ")}`] : []),
    ...(groups ? [`groups ${groups.join(", ")}`] : []),
  ];
  return [scopes.join(", "), ...limits].join("; only ");
}

function rotate({ id, name }) {
  if (!confirm(`Give ${name} a new secret? The current one works for another 24 hours.`)) return;
  run(async () => showSecret(await rotateToken(id, OVERLAP_S)));
}

function revoke({ id, name }) {
  if (!confirm(`Revoke ${name}? Programs that use it are refused within two seconds.`)) return;
  run(() => revokeToken(id));
}

function showSecret({ name, secret }) {
  const section = byId("new-secret");
  section.querySelector("p").textContent = `The secret of ${name} is shown only now. Copy it to where the program reads it:`;
  section.querySelector("code").textContent = secret;
  section.querySelector("button").textContent = "Copy";
  section.hidden = false;
}

/** A secret must not stay on the page longer than the dialog. */
function hideSecret() {
  byId("new-secret").hidden = true;
  byId("new-secret").querySelector("code").textContent = "";
}

/** Return the patterns in a text with commas; null for none, which allows every name. */
function readPatterns(text) {
  const patterns = text.split(",").map((pattern) => pattern.trim()).filter(Boolean);
  return patterns.length ? patterns : null;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  const days = Number(fields.get("days"));
  run(async () => {
    const created = await createToken({
      name: fields.get("name").trim(),
      scopes: fields.getAll("scopes"),
      queues: readPatterns(fields.get("queues")),
      groups: readPatterns(fields.get("groups")),
      expiresInS: days ? days * DAY_S : null,
    });
    form.reset();
    form.closest("details").open = false;
    showSecret(created);
  });
});

byId("new-secret").querySelector("button").addEventListener("click", async (event) => {
  await navigator.clipboard.writeText(byId("new-secret").querySelector("code").textContent);
  event.target.textContent = "Copied";
});
byId("open-tokens").addEventListener("click", () => {
  dialog.showModal();
  run(() => {});
});
byId("close-tokens").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", hideSecret);
