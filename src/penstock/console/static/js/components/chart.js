// A chart as a component: creates the plot once, and draws each new series into it.

import { Chart as Plot } from "../charts.js";
import { html, useEffect, useRef } from "../html.js";
import { timeZone, useTheme } from "../preferences.js";

/** `spec` says what to draw (see chart_specs.js), `series` are its columns (see series.js). */
export function Chart({ spec, series }) {
  const theme = useTheme();
  const zone = timeZone.use();
  const host = useRef(null);
  const plot = useRef(null);

  // Colours and time labels are read when the plot is created.
  useEffect(() => {
    plot.current = new Plot(host.current, spec);
    if (series) plot.current.draw(series);
    return () => {
      plot.current.destroy();
      host.current?.replaceChildren();
    };
  }, [spec, theme, zone]);
  useEffect(() => {
    if (series) plot.current.draw(series);
  }, [series]);

  return html`<div class="chart-host" ref=${host}></div>`;
}
