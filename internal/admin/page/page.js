// The page is whole without this script. With it, the part that changes comes
// once a second, as the same HTML that the page was made of, and is put in place
// node by node, so that focus, selection and what a screen reader stands on stay.
"use strict";
document.documentElement.classList.add("js");

const live = document.getElementById("live");
const feed = document.getElementById("feed");

// keyOf says which nodes are the same thing before and after.
const keyOf = (node) => node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "";

const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

// morph makes what is in from the same as what is in to.
function morph(from, to) {
  const kept = new Map();
  for (const child of from.children) if (keyOf(child)) kept.set(keyOf(child), child);
  let at = from.firstChild;
  for (const next of [...to.childNodes]) {
    const key = keyOf(next);
    let same = key ? kept.get(key) : at;
    if (same && !alike(same, next)) same = undefined;
    if (!same) {
      from.insertBefore(next, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else from.insertBefore(same, at);
    update(same, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function update(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
  morph(from, to);
}

let source, last = Date.now();

function listen() {
  source = new EventSource("events");
  source.addEventListener("live", (event) => {
    const page = new DOMParser().parseFromString(JSON.parse(event.data), "text/html");
    morph(live, page.body);
    last = Date.now();
  });
}

// A page that nobody sees asks for nothing.
document.addEventListener("visibilitychange", () => {
  source.close();
  if (!document.hidden) listen();
});

setInterval(() => {
  const age = Math.round((Date.now() - last) / 1000);
  const lost = age > 3;
  feed.classList.toggle("lost", lost);
  feed.textContent = lost ? `This gateway does not answer: the page is ${age} seconds old.` : "Live.";
}, 1000);

const ask = document.getElementById("ask");
const field = ask.querySelector("input");
let chosen = "";

live.addEventListener("click", (event) => {
  const button = event.target.closest("[data-cancel]");
  if (!button) return;
  chosen = button.dataset.cancel;
  document.getElementById("ask-who").textContent = button.closest("tr").querySelector(".who").textContent.trim();
  tell("");
  ask.showModal();
});

function tell(error) {
  document.getElementById("ask-error").textContent = error;
}

async function cancel() {
  const headers = field.value ? { Authorization: "Bearer " + field.value } : {};
  try {
    const answer = await fetch("api/v1/line/" + encodeURIComponent(chosen), { method: "DELETE", headers });
    if (answer.ok) return ask.close();
    if (answer.status === 401) {
      document.getElementById("ask-token").hidden = false;
      field.focus();
    }
    tell((await answer.json()).detail);
  } catch {
    tell("The gateway does not answer.");
  }
}

document.getElementById("ask-yes").addEventListener("click", cancel);
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  cancel();
});

feed.classList.remove("noscript");
feed.textContent = "Live.";
listen();
