// Pages without inputs: the theme, and a chart where there is one.
import { boot } from "./boot.js";
import { dress } from "./charts.js";
import { themed } from "./page.js";

themed();
for (const doc of boot.charts ?? []) {
  const section = document.getElementById(`chart-${doc.name}`);
  if (section) dress(section, async () => doc);
}
