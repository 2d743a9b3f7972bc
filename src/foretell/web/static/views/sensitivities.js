// Sensitivities: what would move time, cost and energy, the plan held or chosen anew.

import { table } from "../dom.js";
import { facts, h, headingOf, noCard, number, planned, scenarioCard } from "./shared.js";

export default {
  title: "Sensitivities",
  groups: () => [["", ["model", "system", "gpus", "global_batch", "seq_len", "plan", "of", "factor", "replan"]], ["More", ["rent", "price", "set"]]],

  async show(desk) {
    const result = (i) => desk.flags(["of"], i).of ?? "step_s";
    const told = await desk.each(async (i) => {
      const plan = await planned(desk, i);
      if (!plan.step_s || plan.fits === "no") return plan;
      const flags = { ...plan.exact, ...desk.flags(["factor", "replan", "rent", "price"], i) };
      return { ...plan, asked: flags, moved: await desk.ask("sensitivity", flags) };
    });
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.moved ? card(answer, i, result(i)) : noCard(i, answer, headingOf(answer, desk.flags(["model", "system", "gpus"], i))))));
    const active = told[desk.at];
    await desk.figureOf("tornado", `What would move ${desk.names[desk.at]}`, [active.asked ?? null], [desk.names[desk.at]], { wide: true });
    desk.put("elasticities", active.moved ? rows(active.moved, result(desk.at)) : "");
    desk.take(told.map((answer, i) => ({ name: desk.names[i], verb: "sensitivity", flags: answer.asked, answer: answer.moved })).filter(({ answer }) => answer));
    return "";
  },
};

const UNITS = { step_s: "s", energy_joules: "count", usd_per_million_tokens: "usd" };

const change = (row, side, result) => (row[side]?.ratios ? row[side].ratios[result] - 1 : null);

function card(answer, i, result) {
  const { moved } = answer;
  const [first, second] = moved.numbers.filter((row) => row.kind !== "joint" && row.better);
  const said = (row) => [row.words, h("span", {}, number(change(row, "better", result) ?? 0, "signed"), ` when ${moved.factor} times as good`)];
  return scenarioCard(i, headingOf(answer, {}),
    h("p", { class: "big" }, number(moved.results[result], UNITS[result] ?? "count", result), h("small", {}, ` ${moved.result_words[result]}`)),
    h("p", { class: "plan", "data-name": "plan" }, answer.plan), facts([first && said(first), second && said(second)]));
}

function rows(moved, result) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Every number behind it")),
    table(moved.replanned ? "The plan of each what-if is chosen anew" : "The plan is held: nothing is searched again", [
      { title: "number", of: (row) => row.words },
      { title: "path", of: (row) => h("code", {}, row.path) },
      { title: "elasticity", word: "elasticity", unit: "count", of: (row) => row.elasticities[result] },
      { title: `${moved.factor} times as good`, word: "what-if", unit: "signed", of: (row) => change(row, "better", result) },
      { title: `1/${moved.factor} as good`, word: "what-if", unit: "signed", of: (row) => change(row, "worse", result) },
    ], moved.numbers));
}
