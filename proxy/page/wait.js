const show = (what) => {
  document.querySelectorAll("[data-live]").forEach((e) => { e.hidden = true; });
  document.querySelectorAll(`[data-${what}]`).forEach((e) => { e.hidden = false; });
};
const pause = (seconds) => new Promise((done) => { setTimeout(done, seconds * 1000); });
const update = (text) => {
  const next = new DOMParser().parseFromString(text, "text/html");
  const now = document.querySelectorAll("[data-live]");
  document.title = next.title;
  next.querySelectorAll("[data-live]").forEach((e, i) => {
    if (now[i] && now[i].innerHTML !== e.innerHTML) now[i].innerHTML = e.innerHTML;
  });
};
const follow = async () => {
  for (let known = false; ; known = true) {
    let answer, text;
    try {
      answer = await fetch(location.href, {headers: {Accept: "text/html", Prefer: "kgate-place, wait=10"}, cache: "no-store"});
      if (answer.ok && !answer.headers.has("Kgate-Place")) { // the upstream's
        location.reload();
        return;
      }
      text = await answer.text();
    } catch {
      answer = {status: 0};
    }
    if (answer.status === 204 || answer.status === 409 && known) {
      location.reload();
      setTimeout(() => show("served"), 2000);
      return;
    }
    if (answer.status === 409) {
      show("nocookie");
      return;
    }
    if (answer.status === 200) {
      update(text);
    } else {
      await pause(2 + 3 * Math.random());
    }
  }
};
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
follow();
