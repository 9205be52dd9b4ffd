"""A page for each thing that happens while room is made for a deploy, or waited for (GP885 to GP893)."""

from gpuplan.present.page import Page
from gpuplan.present.page import page as _page

PAGES: tuple[Page, ...] = (
    _page(
        "GP885",
        "A deployment is stopped to make room",
        "The plan stops another deployment of gpuplan's first: idle ones before those at work, short keep-alives before long "
        "ones, pinned ones never. Processes of others are never touched.",
        "Its users lose it. It is stopped only when somebody agreed: the question names it, and --yes agrees to what "
        "--strategy evict or the saved plan names, nothing more.",
        "Nothing, if that is meant. gpuplan deploy --keep-alive -1 pins a deployment; without --strategy evict none is stopped.",
        "S4.6; it is kept until the new one serves, and runs again if that fails or is broken off",
    ),
    _page(
        "GP886",
        "A deployment is not as it was agreed to be stopped",
        "Right before the stop, under the lock of its hosts, it is looked at again: requests in flight where there were none, "
        "a negative keep-alive, other containers, or a host of it that does not answer.",
        "To agree to the end of something idle is not to agree to the end of something at work.",
        "Plan again: the deployment is named with what it does then, or another one is found.",
        "S4.6; /metrics of its servers, labels and ids of its containers",
    ),
    _page(
        "GP887",
        "What was to be stopped runs no more",
        "The plan stops a deployment that has ended meanwhile, or was stopped by somebody.",
        "The room it held is judged as it is now: the plan goes on where it fits, and is refused where somebody took it.",
        "Nothing.",
        "labels of containers on all hosts that answer",
    ),
    _page(
        "GP888",
        "A deployment did not stop",
        "A container that was to make room did not end within its time, or the engine of its host refused or fell silent.",
        "Its memory cannot be had while it runs. The deploy is taken back, and what had been stopped is started again.",
        "gpuplan check and gpuplan logs show the host and the container. A process that cannot be killed hangs in the driver: "
        "sudo dmesg -T | grep -i xid, and a reboot as the last resort.",
        "the engine's own words",
    ),
    _page(
        "GP889",
        "Room was made, and there is none",
        "What was to be stopped has ended, memory was waited for, the hosts were read again, and the placement does not fit.",
        "A newcomer took what came free, or the driver gave less back than was estimated. Starting all the same would fail "
        "minutes later.",
        "What was stopped is started again by itself. gpuplan probe names who holds memory; stop that, or plan again.",
        "S4.7: at least 80 % within 30 seconds, polled; then the plan's own request on the fleet as it is",
    ),
    _page(
        "GP890",
        "A deploy waits for room",
        "Nothing fits now and --wait-for-capacity was given, so the hosts are read again and again until it fits. With nothing "
        "at all running it would fit: what never can is not waited for.",
        "At most eight deploys of a user wait for one fleet; the next is refused and told who waits. The first that fits goes "
        "first: one that needs much does not hold up one that needs little.",
        "Nothing; or stop what is no longer needed. Ctrl-C leaves the queue, nothing has been touched. At the end of the time "
        "it exits with 3 and says what was missing.",
        "S4.5, S4.10; queue-FLEET.json in $XDG_STATE_HOME/gpuplan, of this user on this machine",
    ),
    _page(
        "GP891",
        "Another deploy waits for longer",
        "It would fit now, and so may another one of the queue that came earlier; that one is given the time of a look.",
        "Whoever asked first is served first, as far as what came free is enough for it.",
        "Nothing: as soon as the other one has looked, or took its room, it is tried.",
        "the order of the queue file",
    ),
    _page(
        "GP892",
        "The room was taken again",
        "It fitted, and until its hosts were locked somebody else had begun to deploy there or had taken memory.",
        "Nothing was touched. It goes on waiting in its place, as long as its time lasts.",
        "Nothing.",
        "locks of the hosts; the fleet read again under them",
    ),
    _page(
        "GP893",
        "No room came in time",
        "--wait-for-capacity was given, its time is over, and what is asked for fits as little as at its begin.",
        "Nothing was touched. With nothing else running it would fit.",
        "Give it longer, stop what is no longer needed, or let --strategy evict make room. What is missing is named.",
        "the last look at the fleet; exit 3",
    ),
)
