// uPlot 1.6.32 makes an Intl.NumberFormat of navigator.language when it is loaded, which throws where the
// language is a POSIX locale ("en-US@posix": headless browsers without LANG).
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  const Real = Intl.NumberFormat;
  Intl.NumberFormat = function NumberFormat(locales, options) {
    try {
      return new Real(locales, options);
    } catch {
      return new Real('en-US', options);
    }
  };
}
