'use strict';
// Stands before the Perfetto UI: what it would ask of other addresses fails here, quietly, and not in the network.
(function () {
  const inside = (address) => new URL(address, location.href).origin === location.origin || /^(data|blob):/.test(String(address));

  const fetched = window.fetch;
  window.fetch = function (what, ...rest) {
    const address = what && what.url ? what.url : what;
    return inside(address) ? fetched.call(this, what, ...rest) : Promise.reject(new TypeError('not asked: ' + address));
  };

  const source = Object.getOwnPropertyDescriptor(HTMLScriptElement.prototype, 'src');
  Object.defineProperty(HTMLScriptElement.prototype, 'src', {
    ...source,
    set(address) {
      if (inside(address)) source.set.call(this, address);
      else setTimeout(() => this.dispatchEvent(new Event('error')), 0);
    },
  });

  // a directive that browsers dropped, in a policy that the page adds to ours
  const content = Object.getOwnPropertyDescriptor(HTMLMetaElement.prototype, 'content');
  const known = (text) => String(text).replace(/navigate-to [^;]*;?/, '');
  Object.defineProperty(HTMLMetaElement.prototype, 'content', {
    ...content,
    set(text) { content.set.call(this, known(text)); },
  });
  const attribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    attribute.call(this, name, this.tagName === 'META' && name === 'content' ? known(value) : value);
  };

  // its developers' reload of the page
  window.EventSource = class extends EventTarget { close() {} };
}());
