// Elements of the page, made in one expression each.

/** An element, as `td.number.last`, and what is in it: texts and other elements. */
export function element(selector, ...children) {
  const [name, ...classes] = selector.split(".");
  const made = document.createElement(name);
  made.classList.add(...classes);
  made.append(...children);
  return made;
}

/** The same element with styles of its own. */
export function styled(made, styles) {
  Object.assign(made.style, styles);
  return made;
}

/** How wide a text is in the page's font, in pixels. */
export function textWidth(text, size, weight = 400) {
  const canvas = measuring.getContext("2d");
  canvas.font = font(size, weight);
  return canvas.measureText(text).width;
}

/** The page's font, as canvases want it. */
export const font = (size, weight = 400) => {
  return `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
};

const measuring = document.createElement("canvas");
