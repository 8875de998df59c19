// Comes after all others.

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
(data.difference ? buildDifference : build)();
