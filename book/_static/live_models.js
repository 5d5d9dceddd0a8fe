// A button of a live model loads its page, a file of several megabytes, into a frame.

document.addEventListener("click", ({target}) => {
  const {address, title} = target.dataset ?? {};
  if (!address) return;
  const frame = document.createElement("iframe"), {theme} = document.body.dataset;
  frame.title = `A model: ${title}`;
  frame.src = theme === "light" || theme === "dark" ? address.replace("#", `?theme=${theme}#`) : address;
  target.closest(".live-model-start").after(frame);
  target.remove();
});
