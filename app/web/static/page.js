// Comfort only: every form works without this file.

// The zone that the browser lives in, where the form has not been filled in before.
for (const select of document.querySelectorAll("select[data-detect]")) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) {
    const known = [...select.options].some((option) => option.value === zone);
    if (!known) select.add(new Option(zone.replaceAll("_", " "), zone));
    select.value = zone;
  }
}

// The weekday matters to the weekly digest alone.
const cadence = document.getElementById("cadence");
const weekday = document.querySelector("[data-weekly]");
if (cadence && weekday) {
  const show = () => { weekday.hidden = cadence.value !== "weekly"; };
  cadence.addEventListener("change", show);
  show();
}

// What is wrong with a field, beside it; without it, the field is described by its hint again, where it has one.
const unmarked = (field, hint = "interest-hint") => {
  field.removeAttribute("aria-invalid");
  if (!field.hasAttribute("aria-describedby")) return;
  if (document.getElementById(hint)) field.setAttribute("aria-describedby", hint);
  else field.removeAttribute("aria-describedby");
};
const marked = (field, around, name, problem) => {
  const shown = Object.assign(document.createElement("p"), {
    className: "problem", id: "problem-" + name, textContent: problem.textContent,
  });
  around.append(shown);
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", shown.id);
};
// An interest, as far as the preview's last answer still speaks of what stands there; and the other fields.
document.addEventListener("htmx:afterSwap", () => {
  const said = [...document.querySelectorAll(".mistaken li")];
  document.querySelectorAll("[data-lines] .line:not(.heads)").forEach((line, place) => {
    const field = line.querySelector("input");
    const problem = said.find((one) => one.dataset.interest === field.value);
    line.querySelector(".problem")?.remove();
    unmarked(field);
    if (problem) marked(field, line, "interests." + place, problem);
  });
  for (const name of ["min_papers", "max_papers", "max_trending", "muted"]) {
    const field = document.getElementById(name);
    const problem = said.find((one) => one.dataset.field === name);
    document.getElementById("problem-" + name)?.remove();
    if (field) unmarked(field, name + "-hint");
    if (field && problem) marked(field, field.closest(".field"), name, problem);
  }
});

// One more empty line whenever the last one is begun; beside the preferences, one is enough to begin with.
for (const spare of [...document.querySelectorAll(".wishes .line:has(.what:placeholder-shown)")].slice(1)) spare.remove();
for (const lines of document.querySelectorAll("[data-lines]")) {
  lines.addEventListener("input", (event) => {
    const all = [...lines.querySelectorAll(".line:not(.heads)")];
    const last = all.at(-1);
    if (!last.contains(event.target) || event.target.name !== "interest") return;
    if (all.length >= Number(lines.dataset.lines)) return;
    const fresh = last.cloneNode(true);
    for (const problem of fresh.querySelectorAll(".problem")) problem.remove();
    for (const field of fresh.querySelectorAll("input, select")) {
      unmarked(field);
      field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+/, all.length + 1));
      field.value = field.tagName === "SELECT" ? "1" : "";
    }
    lines.append(fresh);
  });
}

// Where one signs up, Enter leads from interest to interest, and then on: nothing is sent half filled in.
for (const lines of document.querySelectorAll(".join .lines")) {
  lines.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    const fields = [...lines.querySelectorAll("input")];
    const next = event.target.value.trim() && fields[fields.indexOf(event.target) + 1];
    (next || document.getElementById("email")).focus();
  });
}

// A file that is too large is told of before it is sent.
for (const field of document.querySelectorAll("input[data-most]")) {
  field.addEventListener("change", () => {
    document.getElementById("problem-" + field.id)?.remove();
    field.removeAttribute("aria-invalid");
    field.setAttribute("aria-describedby", field.id + "-hint");
    if (!(field.files[0]?.size > Number(field.dataset.most))) return;
    const shown = Object.assign(document.createElement("p"), {
      className: "problem", id: "problem-" + field.id, role: "alert",
      textContent: "This file is too large. Please export fewer papers at once, for example one collection.",
    });
    field.after(shown);
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", shown.id);
  });
}

// Words to finish an interest with.
const words = document.getElementById("words");
if (words) {
  let waiting;
  document.addEventListener("input", (event) => {
    if (event.target.name !== "interest") return;
    clearTimeout(waiting);
    const typed = event.target.value.trim();
    if (typed.length < 2) return;
    waiting = setTimeout(async () => {
      const answer = await fetch("/suggest?q=" + encodeURIComponent(typed));
      if (answer.ok) words.replaceChildren(...(await answer.json()).map((word) => new Option(word, word)));
    }, 150);
  });
}
