// The state of one kind of operation in a broker process: calm, busy, overloaded, full or no database.

import { html } from "../html.js";
import { Badge } from "./badge.js";

const KINDS = { calm: "ok", busy: "warn", overloaded: "bad", full: "bad", "no database": "bad" };

export const LoadBadge = ({ state }) => html`<${Badge} kind=${KINDS[state] ?? ""}>${state}<//>`;
