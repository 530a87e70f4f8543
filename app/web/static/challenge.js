// Solve an ALTCHA challenge (PBKDF2 with a counter) and send its form.
// Without this file, visitors can send the form after a pause.
const form = document.querySelector("form[data-puzzle]");
const { parameters, signature } = JSON.parse(form.dataset.puzzle);
const bytes = (hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const nonce = bytes(parameters.nonce);
const pbkdf2 = {
  name: "PBKDF2", salt: bytes(parameters.salt), iterations: parameters.cost,
  hash: parameters.algorithm.split("/")[1],
};
const derive = async (counter) => {
  const password = new Uint8Array(nonce.length + 4);
  password.set(nonce);
  new DataView(password.buffer).setUint32(nonce.length, counter);
  const key = await crypto.subtle.importKey("raw", password, "PBKDF2", false, ["deriveBits"]);
  return hex(await crypto.subtle.deriveBits(pbkdf2, key, parameters.keyLength * 8));
};

// Try several keys at once: the browser derives them in its own threads, so the page stays responsive.
const solve = async (progress) => {
  const lanes = Math.min(navigator.hardwareConcurrency || 2, 8);
  for (let start = 0; ; start += lanes) {
    const keys = await Promise.all(Array.from({ length: lanes }, (_, lane) => derive(start + lane)));
    const lane = keys.findIndex((key) => key.startsWith(parameters.keyPrefix));
    if (lane >= 0) return { counter: start + lane, derivedKey: keys[lane] };
    progress.value = start / form.dataset.attempts;
  }
};

const show = (state) => {
  for (const part of form.querySelectorAll("[data-in]")) part.hidden = !part.dataset.in.split(" ").includes(state);
};
let isSent = false;
const solveAndSend = () => {
  show("working");
  solve(form.querySelector("progress")).then((solution) => {
    form.elements.proof.value = btoa(JSON.stringify({ challenge: { parameters, signature }, solution }));
    isSent = true;
    form.submit();
  }).catch(() => show("waiting"));
};
// After Back or Forward, ask before sending the form again.
const askFirst = () => {
  show("back");
  form.onsubmit = (event) => { event.preventDefault(); form.onsubmit = null; solveAndSend(); };
};

// Browsers offer WebCrypto only to pages from HTTPS or localhost. Without it, visitors have to wait.
if (globalThis.crypto?.subtle) {
  if (performance.getEntriesByType("navigation")[0]?.type === "back_forward") askFirst();
  else solveAndSend();
  addEventListener("pageshow", (event) => { if (event.persisted && isSent) askFirst(); });
}
