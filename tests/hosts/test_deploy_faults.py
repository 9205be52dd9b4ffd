"""Scratch."""
import json, time, os
import pytest
from tests.hosts.deploying import Site, lay_site, Deployed
from tests.hosts.fleet import Fleet
from pathlib import Path
THREE = ("--gpus", "gpu-a:0", "--gpus", "gpu-b:0", "--gpus", "gpu-c:0")
OVER_THREE = ("--tensor-parallel-size", "1", "--pipeline-parallel-size", "3")

@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)

def show(site, name, faults, words, engine=OVER_THREE, where=THREE):
    for h in ("gpu-a","gpu-b","gpu-c"):
        site.faults(h, faults.get(h, {}))
    t=time.time()
    d = site.deploy(*where, *words, engine=engine, status=None)
    print(f"\n=== {name} exit {d.done.returncode} {time.time()-t:.1f}s")
    last=None
    for l in d.lines:
        if l.get("event") in ("phase_started",): print("  ", round(l["at"]-d.lines[0]["at"],1) if isinstance(l.get("at"),(int,float)) else l.get("at"), l["phase"])
    for l in d.of("failed"):
        print("  FAILED", l["phase"], [(f["code"], f["subject"].get("host")) for f in l["findings"]], l["logs"])
    print("  undone", [(l["host"], l["container"], l["what"], l.get("why")) for l in d.of("undone")])
    print("  STDERR", d.done.stderr[-1800:])
    print("  LEFT", site.ours())

def test_scratch(site):
    kv = "ValueError: To serve at least one request with the model's max seq len (2048), 8.00 GiB KV cache is needed, which is larger than the available KV cache memory (7.76 GiB). Based on the available memory, the estimated maximum model length is 1984. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    only=os.environ.get("ONLY")
    cases = {
      "diejoin": ({"gpu-b":{"follower":{"die_after_join":True}}, "gpu-a":{"leader":{"hang_after":"joined"}}}, ()),
      "oom": ({"gpu-c":{"follower":{"oom":True}}}, ()),
      "kv": ({"gpu-a":{"leader":{"exit_after":"model","say":[kv]}}}, ()),
      "unknown": ({"gpu-b":{"follower":{"exit_after":"model","say":["Traceback (most recent call last):","odd.Odder: nobody knows"]}}}, ()),
      "answer": ({"gpu-a":{"leader":{"completion_status":500}}}, ()),
      "never": ({"gpu-a":{"leader":{"never_ready":True}}}, ("--timeout","8")),
      "hang": ({"gpu-b":{"follower":{"hang_after":"starting"}}}, ("--timeout","8")),
    }
    for n,(f,w) in cases.items():
        if not only or n in only.split(","): show(site,n,f,w)
    rcases = {
      "rayfollower": ({"gpu-b":{"ray-follower":{"hang_after":"bound"}}}, ("--timeout","8","--executor","ray")),
      "rayfollowerdies": ({"gpu-b":{"ray-follower":{"exit_after":"bound","say":["boom"]}}}, ("--executor","ray")),
      "rayhead": ({"gpu-a":{"ray-head":{"exit_after":"bound","say":["RuntimeError: boom"]}}}, ("--executor","ray")),
    }
    for n,(f,w) in rcases.items():
        if not only or n in only.split(","): show(site,n,f,w)

def cut(site, name, host, act, phase, words=("--timeout","12"), restore=True):
    t=time.time()
    r = site.begin(*THREE, *words, engine=OVER_THREE)
    kind, _, val = phase.partition(":")
    try: r.until(**({"event":"phase_started","phase":val} if kind=="phase" else {"event":kind, "kind":val} if kind=="milestone" else {"event":kind}))
    except AssertionError:
        print("NOEVENT", (site.directory/"stderr.txt").read_text()[-1500:]); return
    getattr(site.fleet[host], act)()
    print(f"\n=== {name}: cut after", round(time.time()-t,1))
    code = r.end()
    print(f"=== {name} exit {code} {time.time()-t:.1f}s")
    ls=r.lines
    for l in ls:
        if l.get("event") in ("phase_started",): print("  ", l.get("at"), l["phase"])
        if l.get("event")=="failed": print("  FAILED", l["at"], l["phase"], [(f["code"], f["subject"].get("host"), f["headline"]) for f in l["findings"]], len(l["logs"]))
        if l.get("event")=="undone": print("  undone", l["at"], (l["host"], l["container"], l["what"], l.get("why")))
        if l.get("event")=="remark": print("  remark", l["finding"]["headline"])
    print("  STDERR", (site.directory/"stderr.txt").read_text()[-1500:])
    print("  LEFT", site.ours())
    if restore:
        site.fleet[host].link_up() if act=="link_down" else site.fleet[host].restart_sshd() if act=="kill_sshd" else None

def test_cuts(site):
    only=os.environ.get("ONLY")
    for name, host, act, phase in [
      ("image-sshd-follower","gpu-b","kill_sshd","phase:image"),
      ("image-link-leader","gpu-a","link_down","phase:image"),
      ("create-sshd-leader","gpu-a","kill_sshd","phase:create"),
      ("create-link-follower","gpu-b","link_down","phase:create"),
      ("start-sshd-follower","gpu-b","kill_sshd","phase:start"),
      ("start-link-leader","gpu-a","link_down","phase:start"),
      ("load-sshd-leader","gpu-a","kill_sshd","milestone:arguments"),
      ("load-link-follower","gpu-b","link_down","milestone:arguments"),
      ("dockerd-start","gpu-b","restart_dockerd","phase:start"),
      ("dockerd-load","gpu-b","restart_dockerd","milestone:arguments"),
    ]:
        if not only or name in only.split(","):
            if name.startswith("load") or name=="dockerd-load":
                site.faults("gpu-a", {"leader":{"slow_seconds":1}})
            cut(site, name, host, act, phase)
