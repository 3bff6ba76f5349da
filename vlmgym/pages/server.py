"""`vlmgym view [FOLDER]`: open a local web app over all runs in a folder: live progress, comparisons and play.

It listens on the loopback interface only. A request needs the token of the URL that the command prints, or the cookie
that this URL sets, and the name of this machine as its host, so that no other user and no website reads runs or plays.
The pages are those of the static reports, under the same content security policy.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
import tyro
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlmgym.errors import UsageError, VlmgymError
from vlmgym.pages.diagnose import read_diagnosis, render_page
from vlmgym.pages.document import app, safe_json
from vlmgym.pages.episode import episode_json
from vlmgym.pages.library import Library
from vlmgym.policies.openai.policy import image_url
from vlmgym.rollout.runner import infrequent_gc
from vlmgym.runs.store import StoredEpisode
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.envs.human import ARROWS, Player, last_turn
from vlmgym.sandbox.registry import game_ids, make_game
from vlmgym.terminal import make_console

KEYS = (*ARROWS, "space", *"abcdefghijklmnopqrstuvwxyz0123456789")
"""Keys that may be bound to actions, by their names in pygame."""
SEEDS = 2**31
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, kw_only=True)
class ViewConfig:
    """Options of `vlmgym view`."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")] = Path()
    """Folder that is searched for runs and trainings, at any depth."""
    port: int = 0
    """Port on this machine; 0 means any free one."""
    browser: bool = True
    """Open the page in a browser."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port must be between 0 and 65535, got {self.port}")


def view(config: ViewConfig) -> None:
    """Serve the pages of the runs in a folder on this machine until Ctrl-C.

    Raises:
        UsageError: The folder does not exist, or the port cannot be used.
    """
    if not config.folder.is_dir():
        raise UsageError(f"{config.folder} is not a folder")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", config.port))
    except OSError as error:
        raise UsageError(f"port {config.port} cannot be used: {error.strerror}; choose another --port") from None
    listener.listen()  # connections wait until the server has started
    port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
    guarded = Guard(App(Library(config.folder)).starlette(), port, token)
    server = uvicorn.Server(uvicorn.Config(guarded, log_level="error", lifespan="off", timeout_graceful_shutdown=3))
    url = f"http://127.0.0.1:{port}/?token={token}"
    about = f"Shows the runs in {config.folder.absolute()}; Ctrl-C ends it."
    make_console().print(f"view    {url}\n{about}", soft_wrap=True)
    sys.stdout.flush()
    has_display = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & {*os.environ}
    if config.browser and has_display:  # otherwise, a browser in the terminal would open
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    with suppress(KeyboardInterrupt), infrequent_gc():  # pages of 20,000 episodes create many objects
        server.run(sockets=[listener])


class Guard:
    """Lets only requests of this machine's user through, and adds security headers to the responses."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        """Guard an app that is served on `port`, with the token of its URL."""
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self.cookie = f"vlmgym-{port}"  # cookies are shared by all ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request."""
        if scope["type"] != "http":
            return
        request = HTTPConnection(scope)
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        response: ASGIApp = self.app
        if host not in self.hosts or (origin is not None and origin != f"http://{host}"):  # DNS rebinding, other sites
            response = PlainTextResponse("This server answers only on this machine.", 403)
        elif self._is(request.query_params.get("token", "")):
            response = RedirectResponse(request.url.remove_query_params("token"), 303)
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
        elif not self._is(request.cookies.get(self.cookie, "")):
            response = PlainTextResponse("Open the URL with its token, which vlmgym view has printed.", 403)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await response(scope, receive, send_with_headers)

    def _is(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())


class App:
    """The pages of a library and the episodes that are played."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.players: dict[str, Player] = {}
        self.drawing = threading.Lock()  # pygame's fonts are not for several threads

    def starlette(self) -> Starlette:
        """Return the web app."""
        routes = [
            Route("/", self.runs),
            Route("/run", self.run),
            Route("/diagnosis", self.diagnosis),
            Route("/training", self.training),
            Route("/data", self.data),
            Route("/episode", self.episode),
            Route("/video", self.video),
            Route("/live", self.live),
            Route("/play", self.play),
            Route("/play/new", _with_body(self.new_episode), methods=["POST"]),
            Route("/play/respond", _with_body(self.respond), methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers={VlmgymError: _explain})

    def runs(self, request: Request) -> Response:
        """Show the list of runs and trainings."""
        self.library.scan()
        return HTMLResponse(app("runs", self.library.list()))

    def run(self, request: Request) -> Response:
        """Show one or more runs."""
        self.library.scan()
        return HTMLResponse(app("report", self.library.report(request.query_params.getlist("run"))))

    def diagnosis(self, request: Request) -> Response:
        """Show the results of `vlmgym diagnose` for a run."""
        name = request.query_params.get("run", "")
        diagnosis = read_diagnosis(self.library.run(name).saved.stored.folder)
        return HTMLResponse(render_page(diagnosis, f"run?{urlencode({'run': name})}"))

    def training(self, request: Request) -> Response:
        """Show a training."""
        self.library.scan()
        return HTMLResponse(app("training", self.library.training(request.query_params.get("run", ""))))

    def data(self, request: Request) -> Response:
        """Return the data of a page of runs or of a training."""
        names = request.query_params.getlist("run")
        is_training = len(names) == 1 and names[0] in self.library.trainings
        return _json(self.library.training(names[0]) if is_training else self.library.report(names))

    def episode(self, request: Request) -> Response:
        """Return what the viewer shows of an episode."""
        with self.drawing:
            return Response(episode_json(self._stored(request), True), media_type="application/json")

    def video(self, request: Request) -> Response:
        """Return a video of a run."""
        run, stored = self.library.run(request.query_params.get("run", "")), self._stored(request)
        path = run.saved.stored.videos().get(stored.key)
        if path is None or path.is_symlink() or not path.is_file():
            raise HTTPException(404)
        return FileResponse(path, media_type="video/mp4")

    def _stored(self, request: Request) -> StoredEpisode:
        query = request.query_params
        key = query.get("game", ""), query.get("seed", "")
        episodes = self.library.run(query.get("run", "")).saved.stored.episodes
        stored = next((episode for episode in episodes if (episode.game, str(episode.seed)) == key), None)
        if stored is None:
            raise UsageError("this run has no record of this episode")
        return stored

    def live(self, request: Request) -> Response:
        """Return what has changed in the library since a version."""
        version, since = self.library.scan(), request.query_params.get("since", "")
        changed = self.library.changed(int(since) if since.isdecimal() else 0)
        return _json({"changed": changed, "version": version})

    def play(self, request: Request) -> Response:
        """Show the page on which people play."""
        page = {"title": "vlmgym: play", "games": [{"id": game} for game in game_ids()], "live": {"version": 0}}
        return HTMLResponse(app("play", page))

    def new_episode(self, body: Mapping[str, Any]) -> Response:
        """Start an episode of a game, at the levels and with the seed of the request."""
        seed = body.get("seed")
        seed = int(np.random.default_rng().integers(SEEDS)) if seed is None else seed
        with self.drawing:
            game = make_game(str(body.get("game")), body.get("perception", 3), body.get("reasoning", 3))
            player = Player(Episode(game, seed))
            name = secrets.token_urlsafe(9)
            self.players[name] = player
            return _json({"player": name, **_frame(player)})

    def respond(self, body: Mapping[str, Any]) -> Response:
        """Play a key, a click or a text in an episode."""
        player = self.players.get(str(body.get("player")))
        if player is None:
            raise UsageError("this episode is no longer open: start a new one")
        with self.drawing:
            if "key" in body:
                player.press(str(body["key"]))
            elif "text" in body:
                player.typed = ""
                player.press("", str(body["text"]).replace("\n", " "))
                player.press("return")
            elif isinstance(x := body.get("x"), int) and isinstance(y := body.get("y"), int):
                player.click(x, y)
            else:
                raise UsageError("respond with a key, a text, or x and y in pixels")
            return _json(_frame(player))


def _frame(player: Player) -> dict[str, Any]:
    """Return what the page shows of an episode."""
    episode, answer = player.episode, player.game.answer
    outcome = player.last.outcome.value if player.last is not None else ""
    return {
        "image": image_url(player.image()),
        "prompt": player.model_prompt(),
        "facts": {"seed": episode.seed, "turn": episode.turn, "score": f"{episode.score:g}"}
        | {kind.value: count for kind, count in episode.outcomes.items()},
        "outcome": outcome,
        "last": last_turn(episode, player.last)[0],
        "ended": episode.ended is not None,
        "keys": [key for key in KEYS if answer.key(key) is not None],
        "ways": player.ways().strip(),
        "clicks": answer.clicks,
    }


def _with_body(handle: Callable[[Mapping[str, Any]], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a handler that takes the body of a request, which blocks no other request."""

    async def endpoint(request: Request) -> Response:
        try:
            body = await request.json()
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise UsageError("the body must be a JSON object")
        return await run_in_threadpool(handle, body)

    return endpoint


def _json(data: Mapping[str, Any]) -> Response:
    return Response(safe_json(data), media_type="application/json")


async def _explain(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 400)
