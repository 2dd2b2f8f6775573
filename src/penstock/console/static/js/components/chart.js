// A chart as a component: creates the plot once, and draws each new series into it.

import { Chart as Plot } from "../charts.js";
import { html, useEffect, useRef } from "../html.js";
import { timeZone, useTheme } from "../preferences.js";

const NO_ANNOTATIONS = [];
const CURSOR_STEPS = { ArrowLeft: -1, ArrowRight: 1 };
const LARGE_STEP = 10; // buckets, with the shift key

/**
 * `spec` says what to draw (see chart_specs.js), `series` are its columns (see series.js), `annotations` are events to
 * mark. `onZoom(fromMs, toMs)` gets the span that the user selects by dragging, `onZoomOut()` a double click.
 */
export function Chart({ spec, series, annotations = NO_ANNOTATIONS, onZoom, onZoomOut }) {
  const theme = useTheme();
  const zone = timeZone.use();
  const host = useRef(null);
  const plot = useRef(null);
  const handlers = useRef({});
  handlers.current = { onZoom, onZoomOut };

  // Colours and time labels are read when the plot is created.
  useEffect(() => {
    plot.current = new Plot(host.current, spec, {
      onZoom: onZoom && ((from, to) => handlers.current.onZoom(from, to)),
      onZoomOut: () => handlers.current.onZoomOut?.(),
    });
    if (series) plot.current.draw(series, annotations);
    return () => {
      plot.current.destroy();
      host.current?.replaceChildren();
    };
  }, [spec, theme, zone]);
  useEffect(() => {
    if (series) plot.current.draw(series, annotations);
  }, [series, annotations]);

  const moveCursor = (event) => {
    if (event.key in CURSOR_STEPS) plot.current.moveCursor(CURSOR_STEPS[event.key] * (event.shiftKey ? LARGE_STEP : 1));
    else if (event.key === "Escape") plot.current.hideCursor();
    else return;
    event.preventDefault();
  };
  const label = `${spec.title}: ${spec.tooltip}. The arrow keys move the cursor.`;
  return html`<div class="chart-host" ref=${host} tabindex="0" role="group" aria-label=${label} onKeyDown=${moveCursor}></div>`;
}
