"""Plays the demo's scenes; each shows one promise and fails the demo where it does not hold."""

import importlib
import subprocess
import sys
import threading
import time
from pathlib import Path

from pyconfd import __version__
from pyconfd.model.context import PresetName
from tests.demo.routes import canary, ingress
from tests.demo.sample import SampleStage
from tests.demo.stage import Play, Stage
from tests.demo.telling import good, line, paint, require, title
from tests.world.appliance import NAMESPACE
from tests.world.clients import Crowd, TlsCrowd, ask, ask_tls, ping_redis, presented_to
from tests.world.haproxy import BINARY, wait_until


def first_configuration(stage: SampleStage) -> None:
    """From nothing to a serving balancer."""
    title("1  From an empty directory to a serving balancer")
    began = time.monotonic()
    stage.start()
    wait_until(lambda: ask(stage.http, "shop.example.com").startswith("shop-"), "the first request is answered")
    took_s = time.monotonic() - began
    wait_until(lambda: stage.status().get("phase") == "serving", "pyconfd says that it serves")
    status = stage.status()
    line("shop.example.com   http    2 pods    demo/shop")
    line("blog.example.com   http    1 pod     demo/blog")
    line("cache.example.com  redis   1 pod     demo/cache")
    for refusal in status["refused"]:
        line(paint("33", f"refused: {refusal['ref']['namespace']}/{refusal['ref']['name']}: {refusal['detail']}"))
    require(len(status["refused"]) == 1, "the second claim of shop.example.com is refused")
    good(
        f"generation {status['generation']['number']}, checked, and verified in the running worker,"
        f" {took_s:.1f} s after the start"
    )


def requests(stage: SampleStage) -> None:
    """Names reach their pods."""
    title(f"2  Requests through the balancer   http://127.0.0.1:{stage.http}")
    answers = [ask(stage.http, "shop.example.com") for _ in range(4)]
    line(f"shop.example.com     {'  '.join(answers)}")
    require(set(answers) == {"shop-1", "shop-2"}, f"both pods of shop answer, not {answers}")
    blog, unknown = ask(stage.http, "Blog.Example.com:80"), ask(stage.http, "unknown.example.com")
    line(f"blog.example.com     {blog}")
    line(f"unknown.example.com  {unknown}, with a page that says what to annotate")
    wait_until(lambda: ping_redis(stage.redis) == "+PONG", "redis answers through the balancer")
    line("redis PING           +PONG")
    require((blog, unknown) == ("blog-1", "404"), "blog and the landing page answer")
    good("routing by host name in any case, with or without a port, and by port for redis")


def scale_up(stage: SampleStage) -> None:
    """A new pod answers at once, and nobody notices."""
    title("3  A service is scaled up under load, without a reload")
    crowd = Crowd(stage.http, "shop.example.com")
    began = time.monotonic()
    pod = stage.scale_up("shop")
    wait_until(lambda: crowd.seen()[pod] > 3, f"{pod} answers")
    took_s = time.monotonic() - began
    answers = crowd.stop()
    line("  ".join(f"{name} x{count}" for name, count in sorted(answers.items())))
    require(all(answer.startswith("shop-") for answer in answers), f"no request fails, not {dict(answers)}")
    told = stage.told("shop.example.com")
    line(f"pyconfd watch        {told}")
    require("runtime update" in told, f"the change is a runtime update, not {told!r}")
    good(f"{pod} answers {took_s:.2f} s after the event; {answers.total()} requests, none failed")


def new_name(stage: SampleStage) -> None:
    """A new name is a new backend, which a spare serves."""
    title("4  A new service, with a name of its own")
    crowd = Crowd(stage.http, "shop.example.com")
    stage.serve("docs")
    took_s = wait_until(lambda: ask(stage.http, "docs.example.com") == "docs-1", "docs-1 answers")
    answers = crowd.stop()
    line(f"pyconfd watch        {stage.told('docs.example.com')}")
    require(all(answer.startswith("shop-") for answer in answers), f"no request fails, not {dict(answers)}")
    good(f"docs.example.com answers {took_s:.2f} s after the event; {answers.total()} requests of shop, none failed")


def drain(stage: SampleStage) -> None:
    """A pod that terminates ends what it began."""
    title("5  A pod terminates and is drained")
    pod = "shop-1"
    backend = stage.pods.pods[pod]
    backend.delay_s = 1.5
    slow: list[str] = []
    asked = backend.accepted
    threads = [
        threading.Thread(target=lambda: slow.append(ask(stage.http, "shop.example.com")), daemon=True) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: backend.accepted > asked, "a slow request is on its way")
    stage.terminate("shop", pod)
    before = stage.status().get("generation", {}).get("number", 0)
    wait_until(
        lambda: stage.status().get("pending_since") == 0 and "weight 0" in stage.haproxy.conf.read_text(), "drained"
    )
    answers = [ask(stage.http, "shop.example.com") for _ in range(12)]
    for thread in threads:
        thread.join()
    line(f"new requests         {'  '.join(sorted(set(answers)))}")
    line(f"begun before         {'  '.join(sorted(slow))}")
    require(pod not in answers, f"no new request reaches {pod}")
    require(pod in slow and not any("fail" in answer for answer in slow), f"{pod} ends its request, not {slow}")
    stage.remove("shop", pod)
    wait_until(
        lambda: stage.status()["generation"]["number"] > before and pod not in stage.haproxy.conf.read_text(), "gone"
    )
    good(f"{pod} answered what it had begun, got nothing new, and left")


def fail_over(stage: SampleStage) -> None:
    """An API server dies, the next takes over."""
    title("6  The first API server dies; then the service is scaled up again")
    first, second = stage.servers
    crowd = Crowd(stage.http, "shop.example.com")
    first.refuse()
    pod = stage.scale_up("shop")
    took_s = wait_until(lambda: crowd.seen()[pod] > 3, f"{pod} answers")
    answers = crowd.stop()
    servers = stage.status()["source"]["api_servers"]
    for server in servers:
        state = paint("32", "in use") if server["in_use"] else paint("31", server["last_error"][:90] or "down")
        line(f"{server['url']}   {state}")
    require([server["in_use"] for server in servers] == [False, True], "the second API server is in use")
    require(second.watches() > 0, "the second API server is watched")
    require(all(answer.startswith("shop-") for answer in answers), f"no request fails, not {dict(answers)}")
    good(f"{pod} answers {took_s:.2f} s after that, through the second; {answers.total()} requests, none failed")


def renew(stage: SampleStage) -> None:
    """A certificate of a Secret is renewed under clients that shake hands."""
    title("7  docs is served over HTTPS, and its certificate is renewed")
    host = "docs.example.com"
    first = stage.issuer.renew("docs-tls", host)
    stage.cluster.annotate("services", NAMESPACE, "docs", {"pyconfd.io/tls-secret": "docs-tls"})
    wait_until(lambda: presented_to(stage.https, host) == first, "the certificate is presented")
    line(f"https://{host}  {ask_tls(stage.https, host, stage.issuer.ca)}")
    crowd = TlsCrowd(stage.https, host, stage.issuer.ca, clients=4)
    wait_until(lambda: crowd.seen().total() > 8, "clients shake hands")
    second = stage.issuer.renew("docs-tls", host)
    took_s = wait_until(lambda: presented_to(stage.https, host) == second, "the renewed one is presented")
    told = stage.told("docs-tls.pem renewed")
    answers = crowd.stop()
    line(f"pyconfd watch        {told}")
    require("runtime update" in told, f"the change is a runtime update, not {told!r}")
    require(set(answers) == {"docs-1"}, f"no handshake and no request fails, not {dict(answers)}")
    good(f"renewed {took_s:.2f} s after the event; {answers.total()} handshakes, none failed")


def keep(stage: Stage) -> None:
    """Say what to try while it stays up, and start clients that keep asking."""
    stage.servers[0].listen()
    stage.clients()
    title("Everything stays up until Ctrl-C. Things to try:")
    for what in (*stage.to_try(), *to_try(stage)):
        line(what)
    title("A few clients keep asking. The page shows it, its plots after a minute:")
    line(f"http://127.0.0.1:{stage.page}/")


def to_try(stage: Stage) -> tuple[str, ...]:
    """Return the commands that are of use with any preset, for any directory."""
    pyconfd = Path(sys.executable).with_name("pyconfd")
    return (
        f"curl {stage.statistics_page}                   # HAProxy's statistics",
        f"{pyconfd} status --config {stage.config}",
        f"{pyconfd} explain http://shop.example.com:{stage.http}/ --config {stage.config}",
        f"{pyconfd} plan --config {stage.config}",
        f"{pyconfd} watch --config {stage.config}       # in a second terminal, while you change something",
        f"{pyconfd} server list --config {stage.config}",
        f"kubectl --server {stage.servers[0].url} get services,endpointslices -A",
        f"curl http://127.0.0.1:{stage.page}/metrics",
        f"cat {stage.haproxy.conf}",
        f"tail -f {stage.log}",
    )


def scenes() -> Play:
    """Return the scenes of the presets that are in use by default."""
    domains = (first_configuration, requests, scale_up, new_name, drain, fail_over, renew)
    return Play(SampleStage, (*domains, ingress, canary))


def _play(arguments: list[str]) -> Play:
    """Return what ``--preset=NAME`` names: ``scenes`` of the module of that name, beside this one."""
    named = [argument.partition("=")[2] for argument in arguments if argument.startswith("--preset=")]
    preset = named[-1] if named else ""
    if preset in {"", PresetName.DOMAINS}:
        return scenes()
    chosen: Play = importlib.import_module(f"tests.demo.{PresetName(preset).value}").scenes()
    return chosen


def main(arguments: list[str]) -> int:
    """Play; return 0 if every promise held."""
    play = _play(arguments)
    version = subprocess.run([BINARY, "-v"], capture_output=True, text=True, check=True).stdout.split()[2]
    sys.stdout.write(paint("1", f"pyconfd {__version__} with HAProxy {version}: a small cluster, all on loopback\n"))
    began = time.monotonic()
    with play.stage() as stage:
        stage.populate()
        try:
            for scene in play.scenes:
                scene(stage)
            if "--keep" in arguments:
                keep(stage)
                threading.Event().wait()
        except AssertionError as error:
            sys.stdout.write(f"\n{paint('1;31', 'FAILED')} {error}\n")
            if stage.log.exists():
                sys.stdout.write("".join(f"   | {text}\n" for text in stage.log.read_text().splitlines()[-25:]))
            return 1
    sys.stdout.write(
        f"\n{paint('1;32', 'All of it held.')} {time.monotonic() - began:.0f} s; nothing is left running. "
    )
    sys.stdout.write("make demo KEEP=1 stays up.\n")
    return 0
