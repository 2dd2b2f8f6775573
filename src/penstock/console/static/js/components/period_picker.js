// The selection of the time span of a page. The key “t” moves the focus to it.

import { formatTimeSpan } from "../format.js";
import { html, useRef } from "../html.js";
import { useShortcut } from "../keyboard.js";
import { PERIODS, usePeriod } from "../period.js";
import { timeZone } from "../preferences.js";

export function PeriodPicker() {
  timeZone.use();
  const { period, from, to, selectPeriod } = usePeriod();
  const group = useRef(null);
  const focus = useRef(() => group.current?.querySelector("input:checked, input")?.focus());
  useShortcut("t", "Select the time span", focus.current);
  return html`
    <fieldset class="periods" ref=${group}>
      <legend class="visually-hidden">Time span</legend>
      ${period === null &&
      html`<button type="button" class="zoomed" title="Back to the last 30 minutes" onClick=${() => selectPeriod("30m")}>${formatTimeSpan(from, to)} ✕</button>`}
      ${Object.keys(PERIODS).map((choice) => html`
        <label key=${choice}>
          <input type="radio" name="period" value=${choice} checked=${choice === period} onChange=${() => selectPeriod(choice)} />
          ${choice}
        </label>
      `)}
    </fieldset>
  `;
}
