// Pages without inputs: the theme, and a chart where there is one.
import { boot } from "./boot.js";
import { dress, redrawAll } from "./charts.js";
import { themed } from "./page.js";

themed(redrawAll);
for (const doc of boot.charts ?? []) {
  const section = document.getElementById(`chart-${doc.name}`);
  if (section) dress(section, doc);
}
