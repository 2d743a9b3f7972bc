// Sensitivities: what would move time, cost and energy of a step, the plan held.

import { table } from "../dom.js";
import { assumed, facts, h, headingOf, noCard, number, planned, scenarioCard, show } from "./shared.js";

const UNITS = { step_s: "s", energy_joules: "J", usd_per_million_tokens: "usd" };
const FIGURES = [["tornado", true], ["tornado-cost", false], ["tornado-energy", false]];

export default {
  title: "Sensitivities",
  groups: () => [["", ["model", "system", "gpus", "global_batch", "seq_len", "plan"]], ["What if", ["factor", "rent", "price"]], ["More", ["set"]]],

  async show(desk) {
    const told = await desk.each(async (i) => {
      const plan = await planned(desk, i);
      if (!plan.step_s || plan.fits === "no") return plan;
      const flags = { ...plan.exact, ...desk.flags(["factor", "rent", "price"], i) };
      return { ...plan, asked: flags, moved: await desk.ask("sensitivity", flags) };
    });
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.moved ? card(answer, i) : noCard(i, answer, headingOf(answer, desk.flags(["model", "system", "gpus"], i))))));
    const active = told[desk.at];
    const words = Object.values(active.moved?.result_words ?? {});
    await Promise.all(FIGURES.map(([kind, wide], k) => desk.figureOf(kind, `What would move ${words[k] ?? "it"}`, [active.asked ?? null], [desk.names[desk.at]], { wide })));
    desk.put("elasticities", active.moved ? rows(active.moved) : "");
    desk.put("assumed", assumed(told.map((answer) => answer.moved)));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "sensitivity", flags: answer.asked, answer: answer.moved })).filter(({ answer }) => answer));
    return "";
  },
};

function card(answer, i) {
  const { results, result_words: words, numbers, factor } = answer.moved;
  const [first, ...rest] = Object.keys(results);
  const strongest = numbers.filter((row) => row.kind !== "joint" && row.better?.ratios)
    .sort((a, b) => a.better.ratios[first] - b.better.ratios[first])[0];
  return scenarioCard(i, headingOf(answer, {}),
    h("p", { class: "big" }, number(results[first], UNITS[first] ?? "count", first), h("small", {}, " per step")),
    h("p", { class: "plan", "data-name": "plan" }, answer.plan),
    facts([
      ...rest.map((name) => [words[name].replace(/^the (.)/, (_, letter) => letter.toUpperCase()), number(results[name], UNITS[name] ?? "count", name)]),
      strongest && ["Moved most by", h("span", {}, strongest.words, ": ", number(strongest.better.ratios[first] - 1, "signed"), ` at ${show(factor, "count")} times as good`)],
    ]));
}

function rows(moved) {
  const results = Object.keys(moved.results);
  const change = (row, side, name) => (row[side]?.ratios ? row[side].ratios[name] - 1 : null);
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Every number of hardware, software and price")),
    table(moved.replanned ? "The plan of each what-if is chosen anew" : "The plan is held: nothing is searched again", [
      { title: "number", of: (row) => row.words },
      { title: "path", of: (row) => h("code", {}, row.path) },
      ...results.map((name) => ({ title: `elasticity of ${moved.result_words[name].replace("the ", "")}`, word: "elasticity", unit: "count", of: (row) => row.elasticities?.[name] ?? null })),
      { title: `step, ${show(moved.factor, "count")} × better`, word: "what-if", unit: "signed", of: (row) => change(row, "better", results[0]) },
      { title: `step, ${show(moved.factor, "count")} × worse`, unit: "signed", of: (row) => change(row, "worse", results[0]) },
    ], moved.numbers));
}
