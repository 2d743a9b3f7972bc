// The whole state of the page: which view, which scenarios, which of them is being changed. It lives in the
// address, so that a link shows the same: ?view=training&at=2&1.model=...&2.model=...

export const MOST = 4;
export const NAMES = ["A", "B", "C", "D"];
// What a user pastes or drops stays on the page: not in its address, and nowhere else.
export const UNSAVED = ["measured", "system_file", "model_file"];
export const FIRST = { model: "llama-3.1-70b", system: "h100-sxm", gpus: "512" };

export const state = { view: "training", at: 0, scenarios: [{ ...FIRST }], find: "" };

export function read(address = window.location.search) {
  const given = new URLSearchParams(address);
  const scenarios = [];
  for (const [key, value] of given) {
    const [place, name] = key.split(/\.(.*)/s);
    if (name && /^[1-4]$/.test(place) && value !== "") (scenarios[place - 1] ??= {})[name] = value;
  }
  state.scenarios = scenarios.filter(Boolean).slice(0, MOST);
  if (!state.scenarios.length) state.scenarios = [{ ...FIRST }];
  state.view = given.get("view") ?? "training";
  state.find = given.get("find") ?? "";
  const at = Number(given.get("at") ?? 1) - 1;
  state.at = at >= 0 && at < state.scenarios.length ? at : 0;
}

export function address(view = state.view) {
  const told = new URLSearchParams({ view });
  if (state.at) told.set("at", state.at + 1);
  if (state.find && view === "accuracy") told.set("find", state.find);
  state.scenarios.forEach((scenario, i) => {
    for (const [name, value] of Object.entries(scenario)) if (value !== "" && value !== "file" && !UNSAVED.includes(name)) told.set(`${i + 1}.${name}`, value);
  });
  return `?${told}`;
}

export function write() { window.history.replaceState(null, "", address()); }

export function current() { return state.scenarios[state.at]; }
