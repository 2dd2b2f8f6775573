// The dialog that sets the quotas of an environment.

import { fetchQuotas, setEnvironmentQuotas } from "../../api/access.js";
import { TextField } from "../../components/form.js";
import { FormDialog } from "../../components/form_dialog.js";
import { DataState } from "../../components/states.js";
import { html, useState } from "../../html.js";
import { useData } from "../../use_data.js";

/** `quotas` are the limits by the name of the quota. */
export function QuotaDialog({ name, quotas, onClose, onSaved }) {
  const [limits, setLimits] = useState(() => Object.fromEntries(Object.entries(quotas).map(([quota, limit]) => [quota, String(limit ?? "")])));
  const state = useData(fetchQuotas);
  const save = async () => {
    await setEnvironmentQuotas(name, quotasOf(limits));
    onSaved();
    return `The quotas of ${name} are saved. They take effect within two seconds.`;
  };
  return html`
    <${FormDialog} title="Quotas of ${name}" action="Save" save=${save} onClose=${onClose}>
      <p class="hint">An empty field has no limit. Requests beyond a quota are refused with 429 and change nothing.</p>
      <${DataState} state=${state}>
        ${({ kinds }) => html`
          <div class="fields">
            ${kinds.map(({ quota, unit, minLimit }) => html`
              <${TextField} key=${quota} label=${quota} hint=${unit} type="number" min=${minLimit} step="1" value=${limits[quota] ?? ""} onValue=${(text) => setLimits({ ...limits, [quota]: text })} />
            `)}
          </div>
        `}
      <//>
    <//>
  `;
}

/** Return the limits of the form. Empty texts have no limit and are left out. */
export const quotasOf = (limits) =>
  Object.fromEntries(Object.entries(limits).filter(([, text]) => text.trim() !== "").map(([quota, text]) => [quota, Number(text)]));
