// Optional enhancements: every form works without this file.

// Select the browser's time zone in a form that has not been filled in before.
for (const select of document.querySelectorAll("select[data-detect]")) {
  const zoneOf = (options) => {
    try {
      return new Intl.DateTimeFormat("en", options).resolvedOptions().timeZone;
    } catch {
      return ""; // the browser does not know this zone
    }
  };
  const zone = zoneOf();
  const names = [...select.options].map((option) => option.value);
  // Browsers may use the former name of a zone. If they don't know the zone ("Etc/Unknown"), keep the default.
  const current = names.includes(zone) ? zone : names.find((name) => zone && zoneOf({ timeZone: name }) === zone);
  if (current) select.value = current;
  else if (select.dataset.detect.split(" ").includes(zone)) select.add(new Option(zone, zone, true, true));
}

// Show the weekday only for a weekly digest.
const cadence = document.getElementById("cadence");
const weekday = document.querySelector("[data-weekly]");
if (cadence && weekday) {
  const show = () => { weekday.hidden = cadence.value !== "weekly"; };
  cadence.addEventListener("change", show);
  show();
}

// Remove the error of a field, and point aria-describedby to its hint again, if it has one.
const clearProblem = (field, hint = "interest-hint") => {
  field.removeAttribute("aria-invalid");
  if (!field.hasAttribute("aria-describedby")) return;
  if (document.getElementById(hint)) field.setAttribute("aria-describedby", hint);
  else field.removeAttribute("aria-describedby");
};
// Mark a field as invalid. Return a paragraph with the error, which the caller inserts.
const markProblem = (field, name, properties) => {
  const paragraph = document.createElement("p");
  Object.assign(paragraph, { className: "problem", id: "problem-" + name, ...properties });
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", paragraph.id);
  return paragraph;
};
// Show the errors in a preview. Interests are found by their text, because they may have changed in the meantime.
document.addEventListener("htmx:afterSwap", () => {
  const problems = [...document.querySelectorAll(".mistaken li")];
  document.querySelectorAll("[data-lines] .line:not(.heads)").forEach((line, index) => {
    const field = line.querySelector("input");
    const problem = problems.find((item) => item.dataset.interest === field.value);
    line.querySelector(".problem")?.remove();
    clearProblem(field);
    if (problem) line.append(markProblem(field, "interests." + index, { textContent: problem.textContent }));
  });
  for (const name of ["min_papers", "max_papers", "max_trending", "muted"]) {
    const field = document.getElementById(name);
    const problem = problems.find((item) => item.dataset.field === name);
    document.getElementById("problem-" + name)?.remove();
    if (field) clearProblem(field, name + "-hint");
    if (field && problem) field.closest("details").open = true;
    if (field && problem) field.closest(".field").append(markProblem(field, name, { textContent: problem.textContent }));
  }
});

// Keep one empty line in the preferences. Add another when the visitor starts typing in the last line.
for (const spare of [...document.querySelectorAll(".wishes .line:has(.what:placeholder-shown)")].slice(1)) spare.remove();
for (const lines of document.querySelectorAll("[data-lines]")) {
  lines.addEventListener("input", (event) => {
    const rows = [...lines.querySelectorAll(".line:not(.heads)")];
    const last = rows.at(-1);
    if (!last.contains(event.target) || event.target.name !== "interest") return;
    if (rows.length >= Number(lines.dataset.lines)) return;
    const added = last.cloneNode(true);
    for (const problem of added.querySelectorAll(".problem")) problem.remove();
    for (const field of added.querySelectorAll("input, select")) {
      clearProblem(field);
      field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+/, rows.length + 1));
      field.value = field.tagName === "SELECT" ? "1" : "";
    }
    lines.append(added);
  });
}

// Put each line of a pasted list in a field of its own, without its bullet, if there is room for all of them.
for (const lines of document.querySelectorAll("[data-lines]")) {
  lines.addEventListener("paste", (event) => {
    const fields = () => [...lines.querySelectorAll("input[name=interest]")];
    const listed = event.clipboardData.getData("text").split(/[\r\n]+/);
    const texts = listed.map((line) => line.replace(/^\s*([•▪*–-]\s+)?|[\s,;]+$/g, "")).filter(Boolean);
    const room = Number(lines.dataset.lines) - fields().filter((field) => field.value.trim()).length;
    if (!fields().includes(event.target) || event.target.value || texts.length < 2 || texts.length > room) return;
    event.preventDefault();
    for (const text of texts) {
      const field = fields().find((field) => !field.value.trim());
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
  });
}

// Pressing a topic fills in an interest; pressing it again removes it.
for (const topic of document.querySelectorAll("button[name=add]")) {
  topic.addEventListener("click", (event) => {
    event.preventDefault();
    const fields = [...topic.form.querySelectorAll("input[name=interest]")];
    const filled = fields.find((field) => field.value === topic.value);
    const field = filled ?? fields.find((field) => !field.value.trim());
    if (!field) return;
    field.value = filled ? "" : topic.value;
    topic.setAttribute("aria-pressed", String(!filled));
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

// Say why a preview is out of date. 410 means that the link to the preferences has expired or was replaced.
for (const failure of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
  document.addEventListener(failure, (event) => {
    document.getElementById("preview-said").textContent = event.detail.xhr.status === 410
      ? "This link no longer works, so your changes can’t be saved. Copy them before you request a new link."
      : "The preview could not be updated. You can still submit the form.";
  });
}

// In the sign-up form, Enter moves to the next interest, then to the address. It does not send the form.
for (const lines of document.querySelectorAll(".join .lines")) {
  lines.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    const fields = [...lines.querySelectorAll("input")];
    const next = event.target.value.trim() && fields[fields.indexOf(event.target) + 1];
    (next || document.getElementById("email")).focus();
  });
}

// Reject a file that is too large before it is sent.
for (const field of document.querySelectorAll("input[data-most]")) {
  field.addEventListener("change", () => {
    document.getElementById("problem-" + field.id)?.remove();
    field.removeAttribute("aria-invalid");
    field.setAttribute("aria-describedby", field.id + "-hint");
    if (!(field.files[0]?.size > Number(field.dataset.most))) return;
    const textContent = "This file is too large. Please export fewer papers at once, for example one collection.";
    field.after(markProblem(field, field.id, { role: "alert", textContent }));
  });
}

// Suggest words that complete an interest.
const words = document.getElementById("words");
if (words) {
  let timer;
  document.addEventListener("input", (event) => {
    if (event.target.name !== "interest") return;
    clearTimeout(timer);
    const typed = event.target.value.trim();
    if (typed.length < 2) return;
    timer = setTimeout(async () => {
      const response = await fetch("/suggest?q=" + encodeURIComponent(typed));
      if (response.ok) words.replaceChildren(...(await response.json()).map((word) => new Option(word, word)));
    }, 150);
  });
}
