'use strict';
// Loads the trace that ?trace= names into Chrome's trace viewer. Only paths of this server are taken.
(function () {
  window.__hideTraceViewerPolyfillWarning = true;

  function trouble(text) {
    const box = document.createElement('p');
    box.id = 'trouble';
    box.textContent = text;
    document.body.replaceChildren(box);
  }

  document.addEventListener('WebComponentsReady', function () {
    const wanted = new URLSearchParams(location.search).get('trace') || '';
    if (!/^\/(?!\/)/.test(wanted)) {
      trouble('no trace was named');
      return;
    }
    const container = document.createElement('track-view-container');
    container.id = 'track_view_container';
    const viewer = document.createElement('tr-ui-timeline-view');
    viewer.track_view_container = container;
    Polymer.dom(viewer).appendChild(container);
    viewer.id = 'trace-viewer';
    viewer.globalMode = true;
    Polymer.dom(document.body).appendChild(viewer);

    fetch(wanted).then(async function (answer) {
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      const model = new tr.Model();
      await new tr.importer.Import(model).importTracesWithProgressDialog([text]);
      viewer.model = model;
      viewer.viewTitle = wanted;
      document.documentElement.dataset.ready = 'yes';
    }).catch(function (error) { trouble(String(error && error.message || error)); });
  });
}());
