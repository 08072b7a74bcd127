// The comparison page: the charts of several sessions, kept up to date.
import { drawCharts } from "./charts.js";
import { follow } from "./live.js";

follow({ pollMs: 5000, seen: drawCharts(), ofSeveral: true });
