// Clusters: systems ranked by what they do for the money, and how sure the order is.

import { table } from "../dom.js";
import { assumed, facts, h, noCard, number, range, scenarioCard, show, surely, tableOf, withUsual } from "./shared.js";
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
    desk.put("total", tableOf(active, "What each runs"), tableOf(active, "Total cost", "Total cost", "Part by part; resale is money back"));
    desk.put("doubts", active.doubts?.length ? doubts(active, name) : "");
    desk.put("beats", Object.keys(active.beats ?? {}).length > 1 ? beats(active) : "");
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
    h("p", { class: "big" }, h("span", { "data-name": "best" }, answer.best), h("small", {}, answer.by === "tokens" ? " is the fastest" : first.no_price ? " is the fastest; it has no price" : " costs least")),
    h("p", { class: "quiet" }, first.no_price ? "" : [number(first.usd_per_million_tokens, "usd", "usd_per_million_tokens"), " per million tokens, ", range(first.interval?.usd_per_million_tokens?.p90, "usd"), " · "],
      number(first.tokens_per_s, "count", "tokens_per_s"), " tokens/s, ", range(first.interval?.tokens_per_s?.p90, "count")),
    h("p", { class: "plan", "data-name": "plan" }, done?.plan ?? ""),
    facts([
      ["GPUs", number(first.gpus, "count", "gpus")],
      first.no_price ? null : [`Paid over ${show(first.years, "count")} years`, number(first.usd, "usd", "usd")],
      ["Paid", first.paid === "own" ? "bought and run" : first.paid],
      first.usd_per_run ? ["$ per run", surely(first, "usd_per_run", "usd")] : null,
      first.usd_per_request ? ["$ per request", surely(first, "usd_per_request", "usd")] : null,
      first.usd_per_million_output_tokens ? ["$ per million in, out", h("span", {}, number(first.usd_per_million_input_tokens, "usd"), ", ", number(first.usd_per_million_output_tokens, "usd"))] : null,
      others.length ? ["Order", h("span", { class: `tag ${answer.certain ? "yes" : "too_close"}` }, answer.certain ? "certain" : "borderline")] : null,
    ]));
}

function verdict(answer, name) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, `Verdict for ${name}`)),
    h("ul", { class: "said" }, answer.conclusions.map((text) => h("li", {}, text))));
}

function doubts(answer, name) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, `Main uncertainties in the ranking of ${name}`)),
    table("The widest first, 90 % of draws", [
      { title: "of", of: (row) => row.cause },
      { title: "plus or minus", unit: "share", of: (row) => row.half_width },
    ], answer.doubts));
}

function beats(answer) {
  const able = Object.keys(answer.beats);
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "How often one beats another")),
    table(`Share of draws in which the row is ${answer.by === "tokens" ? "faster" : "cheaper"} than the column`, [
      { title: "system", of: (one) => one },
      ...able.map((other) => ({ title: other, unit: "chance", of: (one) => answer.beats[one][other] ?? null })),
    ], able));
}
