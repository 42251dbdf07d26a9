// Explains words: one that is pointed at, focused or tapped shows its sentence of "What the words mean". Escape hides it.
import { byId, element } from "./elements.js";

const GAP = 2; // pixels: so near that the pointer can be moved from the word to its sentence
const MARGIN = 8;

const tip = byId("tip");
let shown = null; // the word that is explained
let pointer = ""; // where it was last
let isPointedAt = false; // else the keyboard asked: a pointer that rests elsewhere does not hide it

// A label that explains itself; `word` names an element `word-...` of the page.
export function term(label, word, classes = "") {
  const made = element("button", `term ${classes}`.trim(), label);
  made.type = "button";
  made.dataset.word = word;
  describe(made);
  return made;
}

function describe(one) {
  one.setAttribute("aria-describedby", `word-${one.dataset.word}`);
}

function show(one) {
  shown = one;
  tip.textContent = byId(`word-${one.dataset.word}`).textContent;
  tip.hidden = false;
  tip.style.left = "0"; // as wide as it likes to be
  const { left, top, bottom } = one.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = tip;
  const isRoomBelow = bottom + GAP + height < innerHeight;
  tip.style.left = `${Math.max(MARGIN, Math.min(left, document.documentElement.clientWidth - width - MARGIN))}px`;
  tip.style.top = `${isRoomBelow ? bottom + GAP : Math.max(0, top - GAP - height)}px`;
}

// The page is scrolled, perhaps because the keyboard came to a word further down.
function follow() {
  if (!tip.hidden) show(shown);
}

function hide() {
  tip.hidden = true;
}

function point(event) {
  const one = event.target.closest("[data-word]");
  if (one) show(one);
  else if (isPointedAt && !event.target.closest("#tip")) hide();
  isPointedAt = one !== null || (isPointedAt && !tip.hidden);
}

function focus(event) {
  isPointedAt = false;
  if (event.target.closest("[data-word]")) show(event.target);
}

for (const one of document.querySelectorAll("[data-word]")) describe(one);
document.addEventListener("click", point);
document.addEventListener("mousemove", (event) => {
  const at = `${event.screenX} ${event.screenY}`;
  if (at !== pointer) point(event); // else the page moved below it
  pointer = at;
});
document.addEventListener("focusin", focus);
document.addEventListener("focusout", hide);
document.addEventListener("scroll", follow, { capture: true, passive: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
});
