// Cost: money, energy and carbon of a training run, of served tokens, or of a system, with ranges.

import { table } from "../dom.js";
import { assumed, facts, h, noCard, number, PLACE, range, scenarioCard, show, sure, surely, withUsual, word } from "./shared.js";
import { nameOf } from "../own.js";
import { differences } from "./differences.js";

const PAID = ["rent", "price", "region", "utilisation"];
const KINDS = {
  "": ["cost run", "cost-run", [...PLACE, "tokens", ...PAID]],
  token: ["cost token", "cost-token", ["model", "system", "s_gpus", "isl", "osl", "concurrency", "layout", "engine", "set", ...PAID]],
  system: ["cost system", "cost-system", ["system", "gpus", "price", "utilisation", "set"]],
};

// The tree that stands beside the money.
const SECOND = { "cost run": ["energy", "Energy"], "cost token": ["energy", "Energy"], "cost system": ["year", "A year"] };

export default {
  title: "Cost",
  groups: ({ what = "" }) => ({
    "": [["", ["what", "model", "system", "gpus", "tokens", "global_batch", "seq_len", "plan"]], ["Paying", PAID], ["More", ["set"]]],
    token: [["", ["what", "model", "system", "s_gpus", "concurrency", "isl", "osl", "layout", "engine"]], ["Paying", PAID], ["More", ["set"]]],
    system: [["", ["what", "system", "gpus"]], ["Paying", ["price", "utilisation"]], ["More", ["set"]]],
  })[what] ?? [],

  async show(desk) {
    const kinds = desk.names.map((_, i) => KINDS[desk.flags(["what"], i).what ?? ""]);
    const questions = kinds.map(([verb, , names], i) => (verb === "cost token" ? withUsual(desk.flags(names, i), { gpus: 8 }) : desk.flags(names, i)));
    const told = await desk.each((i) => desk.ask(kinds[i][0], questions[i]));
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.usd ? card(answer, i) : noCard(i, answer, nameOf(questions[i].model) || nameOf(questions[i].system), "No cost"))));
    const [verb, kind] = kinds[desk.at];
    const alike = questions.map((question, i) => (kinds[i][0] === verb && told[i].usd ? pinned(question, told[i]) : null));
    const [second, secondTitle] = SECOND[verb];
    await Promise.all([
      desk.figureOf("cost", "Money", alike, desk.names, { kind }),
      desk.figureOf("second", secondTitle, alike, desk.names, { kind: `${kind}-${second}` }),
    ]);
    const active = told[desk.at];
    desk.put("difference", differences(told, METRICS, [["Where the money differs", "usd", parts]]));
    desk.put("terms", active.usd ? terms(active) : "", active.drivers?.length ? drivers(active) : "");
    desk.put("assumed", assumed(told));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: kinds[i][0], flags: questions[i], answer })).filter(({ answer }) => answer.usd));
    return "";
  },
};

const METRICS = [["Cost", "usd", (a) => a.usd], ["$ per million tokens", "usd", (a) => a.usd_per_million_tokens], ["GPU-hours", "count", (a) => a.gpu_hours],
  ["Energy", "MWh", (a) => a.energy_mwh], ["Carbon", "kg CO₂e", (a) => a.carbon_kg]];

function parts(answer) {
  let held = answer.breakdown;
  while (held?.children?.length === 1) [held] = held.children;
  return Object.fromEntries((held?.children ?? []).map((part) => [part.name, part.value]));
}

// The same question with the plan that was found, so that it is not searched again.
const pinned = (question, answer) => (answer.plan ? { ...question, plan: answer.plan } : question);

function card(answer, i) {
  const of = { run: "a training run", token: "a million tokens", system: "the system" }[answer.what] ?? answer.what;
  const carbon = answer.carbon_kg;
  return scenarioCard(i, `${answer.name}${answer.system ? ` on ${show(answer.gpus, "count")} × ${answer.system}` : ""}`,
    h("p", { class: "big" }, number(answer.usd, "usd", "usd"), h("small", {}, ` for ${of}`)),
    h("p", { class: "quiet" }, `from ${range([answer.low_usd, answer.high_usd], "usd")}`),
    answer.plan ? h("p", { class: "plan", "data-name": "plan" }, answer.plan) : "",
    facts([
      answer.paid ? ["Paid", answer.paid] : null,
      answer.usd_per_gpu_hour ? ["$ per GPU-hour", surely(answer, "usd_per_gpu_hour", "usd")] : null,
      answer.gpu_hours ? ["GPU-hours", surely(answer, "gpu_hours", "count")] : null,
      answer.days ? ["Takes", number(answer.days * 86400, "s")] : null,
      answer.tokens && answer.what === "run" ? ["Tokens", number(answer.tokens, "tokens")] : null,
      answer.usd_per_million_tokens ? ["$ per million tokens", surely(answer, "usd_per_million_tokens", "usd")] : null,
      answer.energy_mwh ? ["Energy", answer.energy_mwh < 0.1 ? h("span", {}, number(1000 * answer.energy_mwh, "kWh"), sure(answer.intervals?.energy_mwh?.p90.map((x) => 1000 * x), "kWh")) : surely(answer, "energy_mwh", "MWh")] : null,
      carbon ? ["Carbon", number(carbon >= 1000 ? carbon / 1000 : carbon, carbon >= 1000 ? "t CO₂e" : "kg CO₂e")] : null,
      answer.embodied_carbon_kg ? [word("of it embodied", "embodied"), number(answer.embodied_carbon_kg / carbon, "share")] : null,
      answer.goodput ? [word("Goodput"), number(answer.goodput, "share")] : null,
      answer.peak_watts ? ["Peak power", number(answer.peak_watts / 1e3, "kW")] : null,
      answer.nodes ? ["Nodes", number(answer.nodes, "count")] : null,
    ]));
}

function terms(answer) {
  const rows = answer.terms ?? answer.renting ?? [];
  if (!rows.length) return "";
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, answer.terms ? "The same, paid in other ways" : "Renting beside it")),
    table("Middle of all figures", [
      { title: "term", of: (row) => row.term },
      { title: "$ per GPU-hour", unit: "usd", of: (row) => row.usd_per_gpu_hour },
      ...(answer.terms ? [{ title: "whole", unit: "usd", of: (row) => row.usd }, { title: "$ per million tokens", unit: "usd", of: (row) => row.usd_per_million_tokens }]
        : [{ title: "break-even (years)", unit: "count", of: (row) => row.break_even_years }]),
      { title: "source", long: true, of: (row) => row.source },
    ], rows, (row) => row.term === answer.paid));
}

function drivers(answer) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, word("Drivers", "driver"), ": figures whose range moves it")),
    table("Whole cost with one figure at the end of its range", [
      { title: "figure", of: (row) => h("code", {}, row.path) },
      { title: "taken", unit: "count", of: (row) => row.value },
      { title: "from", unit: "count", of: (row) => row.low },
      { title: "to", unit: "count", of: (row) => row.high },
      { title: "cost at the low end", unit: "usd", of: (row) => row.usd_at_low },
      { title: "cost at the high end", unit: "usd", of: (row) => row.usd_at_high },
    ], answer.drivers));
}
