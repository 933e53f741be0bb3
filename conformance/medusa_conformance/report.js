"use strict";
// The page is whole without this: it adds the filter and the copy buttons.
const filter = document.querySelector(".filter");

function show(status) {
  for (const button of filter.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.show === status));
  }
  for (const body of document.querySelectorAll(".invariants tbody")) {
    const rows = [...body.querySelectorAll("[data-status]")];
    for (const row of rows) row.hidden = status !== "" && row.dataset.status !== status;
    body.hidden = rows.every((row) => row.hidden);
  }
}

filter.hidden = false;
filter.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) show(button.dataset.show);
});

// A link to a row that is filtered out would lead nowhere.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  const target = link && document.getElementById(link.getAttribute("href").slice(1));
  if (target && target.closest("[hidden]")) show("");
});

// The clipboard needs permission, which a page from a file may lack; a selection needs none.
async function copy(text, place) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(place);
    return document.execCommand("copy");
  }
}

for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    const line = button.parentElement.querySelector("code");
    button.textContent = (await copy(line.textContent, line)) ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
