// The page of the URL. Its module is loaded first; a failure is shown in its place.

import { Page } from "../components/page.js";
import { Empty, Loading, Unavailable } from "../components/states.js";
import { html, useEffect, useErrorBoundary, useState } from "../html.js";
import { useLocation } from "../location.js";
import { findRoute } from "../routes.js";
import { useSession } from "../session.js";

export function CurrentPage() {
  const { pathname } = useLocation();
  const session = useSession();
  const match = findRoute(pathname);
  if (!match) return html`<${MissingPage} />`;
  const { route, params } = match;
  if (route.scope && !session.can(route.scope)) return html`<${ForbiddenPage} route=${route} />`;
  return html`<${LoadedPage} key=${pathname} route=${route} params=${params} />`;
}

function LoadedPage({ route, params }) {
  const [module, setModule] = useState(null);
  const [loadProblem, setLoadProblem] = useState(null);
  const [renderError] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    route.load().then(
      (loaded) => setModule({ Content: loaded.default }),
      (error) => {
        console.error(error);
        setLoadProblem({ message: "The page could not be loaded from the broker. Reload it when the broker is up." });
      },
    );
  }, [route]);
  if (renderError) return html`<${Unavailable} problem=${describeDefect(renderError)} />`;
  if (loadProblem) return html`<${Unavailable} problem=${loadProblem} />`;
  if (!module) return html`<${Loading} />`;
  return html`<${module.Content} params=${params} />`;
}

const describeDefect = (error) => ({
  title: "Defect of the console",
  message: `The page cannot be shown: ${error.message}. Reload it; the browser's console has the details.`,
});

const MissingPage = () => html`
  <${Page} title="Page not found">
    <${Empty} title="The console has no such page."><p><a href="/">Go to the overview</a></p><//>
  <//>
`;

const ForbiddenPage = ({ route }) => html`
  <${Page} title=${route.title}>
    <${Empty} title="You may not open this page.">
      <p>It needs the scope <code>${route.scope}</code>. Ask an administrator of this environment for it.</p>
    <//>
  <//>
`;
