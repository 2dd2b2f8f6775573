"""Run Canaille, an OpenID Connect provider, with three people and one client.

    python canaille_program.py DATABASE

It prints its port. Each line of its input is an address that the client may send people back to; it repeats
the line when that is so. Its data is in a file of SQLite: queries in its own memory match any condition
instead of all. The directory of its packages must be on PYTHONPATH: see `identity_providers.py`.
"""

from __future__ import annotations

import socket
import sys
from secrets import token_urlsafe
from threading import Thread
from typing import Any

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from canaille.oidc import provider
from werkzeug.serving import make_server

CLIENT_ID = "penstock-console"
CLIENT_SECRET = "client secret & more"
PASSWORD = "correct horse battery staple"
generate_jwt = provider.generate_id_token
GROUPS = {"alice": ["operators", "staff"], "bob": ["staff"], "mallory": []}


def add_people_and_client() -> None:
    members: dict[str, list[object]] = {}
    for name, groups in GROUPS.items():
        user = models.User(
            user_name=name,
            display_name=name,
            formatted_name=name.title(),
            family_name=name.title(),
            emails=[f"{name}@example.com"],
            password=PASSWORD,
        )
        Backend.instance.save(user)
        for group in groups:
            members.setdefault(group, []).append(user)
    for group, users in members.items():
        Backend.instance.save(models.Group(display_name=group, members=users))
    client = models.Client(
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        client_name="Penstock",
        redirect_uris=[],
        grant_types=["authorization_code"],
        response_types=["code"],
        scope=["openid", "profile", "email", "groups"],
        token_endpoint_auth_method="client_secret_basic",
    )
    Backend.instance.save(client)
    client.audience = [client]
    Backend.instance.save(client)


def unique_access_token(**claims: Any) -> str:
    """A JWT with a claim that differs each time.

    Without it, the access tokens of two logins of a person within one second are equal, and Canaille's
    database refuses the second one.
    """
    return str(generate_jwt(**claims, nonce=token_urlsafe(16)))


def add_redirect_uri(redirect_uri: str) -> None:
    client = Backend.instance.get(models.Client, client_id=CLIENT_ID)
    client.redirect_uris = [*client.redirect_uris, redirect_uri]
    Backend.instance.save(client)


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = {
        "SERVER_NAME": f"127.0.0.1:{port}",
        "PREFERRED_URL_SCHEME": "http",
        "SECRET_KEY": "0123456789" * 4,
        "CANAILLE_SQL": {"DATABASE_URI": f"sqlite:///{sys.argv[1]}"},
        "CANAILLE": {"FORCE_HTTPS": False},
        "CANAILLE_OIDC": {"TRUSTED_DOMAINS": []},
    }
    provider.generate_id_token = unique_access_token
    app = create_app(config=settings, init_backend=True)
    with app.app_context():
        add_people_and_client()
    server = make_server("127.0.0.1", port, app, threaded=True, fd=listener.fileno())
    Thread(target=server.serve_forever, daemon=True).start()
    print(port, flush=True)
    for line in sys.stdin:
        with app.app_context():
            add_redirect_uri(line.strip())
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()
