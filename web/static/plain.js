// Pages without the inputs of a plan: the theme, and a chart where there is one.
import { boot } from "./boot.js";
import { dressAll } from "./charts.js";
import { themed } from "./page.js";

themed();
dressAll(boot.charts ?? []);
