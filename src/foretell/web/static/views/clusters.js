// Clusters: systems ranked by what they do for the money, and how sure the order is.

import { showing } from "../api.js";
import { assumed, facts, h, noCard, number, restOf, scenarioCard, show, shown, tableOf, withUsual } from "./shared.js";
import { nameOf } from "../own.js";

const PAID = ["rent", "price", "years", "utilisation", "region"];
const STEP = ["model", "systems", "gpus", "budget", "by", "global_batch", "seq_len", "plan", "set", "measured", ...PAID];
const SERVICE = ["model", "systems", "gpus", "budget", "by", "isl", "osl", "ttft", "tpot", "engine", "layout", "set", "measured", ...PAID];
const USUAL = ["h100-sxm", "h200-sxm", "b200-sxm", "mi300x"];

export default {
  title: "Clusters",
  groups: ({ work = "" }) => [["", ["model", "systems", "gpus", "budget", "work"]],
    [work ? "The service" : "The step", work ? ["isl", "osl", "ttft", "tpot", "engine", "layout"] : ["global_batch", "seq_len", "plan"]],
    ["Paying", ["by", ...PAID]], ["More", ["measured", "set"]]],

  async show(desk) {
    const questions = desk.names.map((_, i) => question(desk, i));
    const told = await desk.each((i) => desk.ask("compare", questions[i]));
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.systems ? card(answer, i, questions[i]) : noCard(i, answer, nameOf(questions[i].model, "your model"), "No system fits"))));
    const active = told[desk.at];
    const name = desk.names[desk.at];
    desk.put("order", active.systems ? verdict(active, name) : "");
    const asked = [active.systems ? questions[desk.at] : null];
    await Promise.all([
      desk.figureOf("clusters-cost", "$ for a million tokens", asked, [name]),
      desk.figureOf("clusters", "Tokens a second of the whole cluster", asked, [name]),
    ]);
    desk.put("systems", tableOf(active, "", `Systems of ${name}, the best first`));
    desk.put("total", ...restOf(active, [""]));
    desk.put("assumed", assumed(told));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "compare", flags: questions[i], answer })).filter(({ answer }) => answer.systems));
    return "";
  },
};

// A sum of money takes the place of a number of chips; without a list, the system in hand beside the usual ones.
function question(desk, i) {
  const { work } = desk.flags(["work"], i);
  const { system } = desk.flags(["system"], i);
  const { gpus, ...rest } = withUsual(desk.flags(work ? SERVICE : STEP, i), work ? { isl: 1024, osl: 1024 } : {});
  const { systems = [...new Set([system ?? USUAL[0], ...USUAL])].slice(0, 4), ...flags } = rest;
  return { systems, ...flags, ...(flags.budget === undefined ? { gpus: gpus ?? 512 } : {}) };
}

function card(answer, i, asked) {
  const [first, ...others] = answer.systems.filter((row) => !row.problem);
  const done = Object.values(first.workloads)[0];
  return scenarioCard(i, `${nameOf(asked.model, "your model")}: best of ${answer.systems.length}`,
    h("p", { class: "big" }, h("span", { "data-name": "best" }, answer.best), h("small", {}, answer.by === "tokens" ? " is the fastest" : first.no_price ? " is the fastest; it has no price" : answer.certain ? " costs least" : " is expected to cost least")),
    h("p", { class: "plan", "data-name": "plan" }, done?.plan ?? ""),
    facts([
      ...shown(showing({ ...first }, answer.presentation), ["system"]),
      ["GPUs", number(first.gpus, "count", "gpus")],
      first.no_price ? null : [`Paid over ${show(first.years, "count")} years`, number(first.usd, "usd", "usd")],
      ["Paid", first.paid === "own" ? "bought and run" : first.paid],
      others.length ? ["Order", h("span", { class: `tag ${answer.certain ? "yes" : "too_close"}` }, answer.certain ? "certain" : "not certain")] : null,
    ]));
}

function verdict(answer, name) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, `Verdict for ${name}`)),
    h("ul", { class: "said" }, answer.conclusions.map((text) => h("li", {}, text))));
}
