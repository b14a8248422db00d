// A time and its parts.

import { draw, make, milliseconds } from "./dom.js";

/** Parts of a time as one bar, with a legend that says them in words. */
export function bar(label, parts) {
  const whole = parts.reduce((sum, [, time]) => sum + time, 0) || 1;
  const drawn = draw("svg", {
    viewBox: "0 0 1000 12", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true",
  });
  const legend = make("ul", { className: "legend", "aria-label": label });
  let from = 0;
  parts.forEach(([name, time], place) => {
    const width = (1000 * time) / whole;
    drawn.append(draw("rect", { x: from, width, height: 12, class: `part${place}` }));
    legend.append(make("li", { className: `part${place}` }, `${name} ${milliseconds(time)}`));
    from += width;
  });
  return make("div", { className: "times" }, drawn, legend);
}
