// Cost: money, energy and carbon of a training run, of served tokens, or of a system, with ranges.

import { assumed, facts, h, noCard, named, number, PLACE, scenarioCard, show, shown, surely, tableOf, withUsual, word } from "./shared.js";
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
    desk.put("terms", tableOf(active, "Ways to pay"), tableOf(active, "What moves it"));
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
  return scenarioCard(i, `${answer.name}${answer.system ? ` on ${show(answer.gpus, "count")} × ${answer.system}` : ""}`,
    h("p", { class: "big" }, named(answer, "usd"), h("small", {}, ` for ${of}`)),
    h("p", { class: "quiet" }, word("90 % interval", "interval"), ` ${surely(answer, "usd")}`),
    answer.plan ? h("p", { class: "plan", "data-name": "plan" }, answer.plan) : "",
    facts([
      answer.paid ? ["Paid", answer.paid] : null,
      ...shown(answer, ["usd"]),
      answer.embodied_carbon_kg ? [word("of it embodied", "embodied"), number(answer.embodied_carbon_kg / answer.carbon_kg, "share")] : null,
    ]));
}
