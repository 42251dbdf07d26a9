// Elements from plain values. What comes from the network only ever becomes text, never markup.

export const byId = (id) => document.getElementById(id);

export function element(tag, classes = "", ...content) {
  const made = document.createElement(tag);
  made.className = classes;
  made.append(...content);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const bar = () => element("div", "bar", element("span"), element("b", "", element("i")));

// The number beside the bar that `parent` has, and the bar's length.
export function setBar(parent, text, share) {
  setText(parent.querySelector(".bar span"), text);
  parent.querySelector(".bar i").style.width = `${Math.min(100, 100 * share)}%`;
}

// Children for these items, in their order: those with the same key are kept and shown anew.
export function keep(parent, items, keyOf, make, show) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const children = items.map((item) => {
    const key = keyOf(item);
    const child = known.get(key) ?? make(item);
    child.dataset.key = key;
    show(child, item);
    return child;
  });
  const same = children.length === parent.children.length && children.every((child, i) => child === parent.children[i]);
  if (!same) parent.replaceChildren(...children);
}

export const fixed = (value, digits) => value.toFixed(digits);
export const percent = (share) => `${Math.round(100 * share)} %`;
export const count = (value) => value.toLocaleString("en");

export const clockTime = (seconds) => new Date(1000 * seconds).toLocaleTimeString([], { hourCycle: "h23" });

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d`;
}
