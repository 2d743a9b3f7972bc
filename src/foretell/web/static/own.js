// A cluster or a model of the user's own: by the form (then it is in the address) or from a dropped file (then it is
// in this page alone). Either goes to the server as an object with each question, and is kept nowhere.

const number = (text) => (text !== undefined && text !== "" && Number.isFinite(Number(text)) ? Number(text) : undefined);

export const CLUSTER = ["c_chip", "c_each", "c_nodes", "c_link", "c_net", "c_topology", "c_price"];
// What a field means where it is left empty.
export const USUAL = { c_chip: "h100-sxm", c_each: 8, c_nodes: 64, c_link: "450 GB/s", c_net: "400 Gbit/s", c_topology: "fat-tree" };

// The system of a scenario: an id, an object, or nothing.
export function systemOf(scenario) {
  if (scenario.own === "form") return cluster(scenario);
  if (scenario.own === "file" && scenario.system_file) return JSON.parse(scenario.system_file).object;
  return scenario.system?.trim() || undefined;
}

export function modelOf(scenario) {
  if (scenario.own_model === "file" && scenario.model_file) return JSON.parse(scenario.model_file).object;
  return scenario.model?.trim() || undefined;
}

// Chips of the user's own cluster: all of them are used where no number is given.
export function chipsOf(scenario) {
  if (scenario.own === "form") return (number(scenario.c_each) ?? USUAL.c_each) * (number(scenario.c_nodes) ?? USUAL.c_nodes);
  if (scenario.own === "file" && scenario.system_file) return JSON.parse(scenario.system_file).chips;
  return undefined;
}

function cluster(scenario) {
  const held = (name) => scenario[name]?.trim() || USUAL[name];
  const each = number(scenario.c_each) ?? scenario.c_each?.trim() ?? USUAL.c_each;
  const nodes = number(scenario.c_nodes) ?? scenario.c_nodes?.trim() ?? USUAL.c_nodes;
  const price = number(scenario.c_price);
  const made = { id: "own-cluster", name: "My cluster", chip: held("c_chip"), chips_per_node: each || USUAL.c_each };
  if (price !== undefined) made.node_price_usd = price;
  made.network = {
    node: { size: each || USUAL.c_each, bandwidth_bytes_per_s: rate(held("c_link"), "GB/s"), latency_s: "2.5 us" },
    cluster: { size: nodes || USUAL.c_nodes, bandwidth_bytes_per_s: rate(held("c_net"), "Gbit/s"), latency_s: "5 us", topology: held("c_topology") },
  };
  return made;
}

const rate = (text, unit) => (number(text) === undefined ? text : `${text} ${unit}`);

export function nameOf(thing, otherwise = "") {
  if (thing && typeof thing === "object") return thing.id ?? thing._name_or_path ?? otherwise;
  return thing ?? otherwise;
}

// An object as TOML, for the command line: values first, then tables.
export function toml(table, path = []) {
  const plain = Object.entries(table).filter(([, value]) => !isTable(value));
  const inner = Object.entries(table).filter(([, value]) => isTable(value));
  const lines = plain.map(([name, value]) => `${name} = ${Array.isArray(value) ? `[${value.map(written).join(", ")}]` : written(value)}`);
  const head = path.length && lines.length ? [`[${path.join(".")}]`] : [];
  const own = lines.length ? [`${[...head, ...lines].join("\n")}\n`] : [];
  return [...own, ...inner.map(([name, value]) => toml(value, [...path, name]))].join("\n");
}

const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function written(value) {
  if (isTable(value)) return `{ ${Object.entries(value).map(([name, one]) => `${name} = ${written(one)}`).join(", ")} }`;
  if (Array.isArray(value)) return `[${value.map(written).join(", ")}]`;
  return JSON.stringify(value);
}
