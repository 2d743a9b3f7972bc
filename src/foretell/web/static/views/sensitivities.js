// Sensitivities: what would move time, cost and energy of a step, the plan held.

import { assumed, facts, h, headingOf, named, noCard, planned, restOf, scenarioCard, shown } from "./shared.js";

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
    desk.put("elasticities", ...(active.moved ? restOf(active.moved) : [""]));
    desk.put("assumed", assumed(told.map((answer) => answer.moved)));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "sensitivity", flags: answer.asked, answer: answer.moved })).filter(({ answer }) => answer));
    return "";
  },
};

function card(answer, i) {
  const { moved } = answer;
  const [first] = Object.keys(moved.results);
  return scenarioCard(i, headingOf(answer, {}),
    h("p", { class: "big" }, named(moved, first), h("small", {}, " per step")),
    h("p", { class: "plan", "data-name": "plan" }, answer.plan),
    h("p", { class: "quiet" }, moved.presentation.headline),
    facts(shown(moved, [first])));
}
