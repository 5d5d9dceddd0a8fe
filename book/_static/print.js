// Answers and results that are folded on the screen are printed, too. Afterwards they fold again.

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("article details:not([open])")) {
    details.open = true;
    addEventListener("afterprint", () => { details.open = false; }, {once: true});
  }
});
